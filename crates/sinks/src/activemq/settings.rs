//! The configuration of a sink into ActiveMQ, as used.

use std::time::Duration;

use duly_core::Invalid;

use super::config::{ActivemqConfig, ActivemqDestination};
use crate::connection::{Address, Scheme, Written};

const SCHEMES: &[Scheme] = &[("stomp", false, 61613), ("stomp+ssl", true, 61614)];
const WANTED: &str = "a URL such as stomp://user:password@127.0.0.1:61613 or stomp+ssl://host";

/// Everything set, everything checked.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) destination: ActivemqDestination,
    pub(super) timeout: Duration,
}

impl Settings {
    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &ActivemqConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Vec::new();
        let timeout = config.request_timeout();
        let written = Written {
            url: &config.url,
            ca: config.ca.as_deref(),
            client_cert: config.client_cert.as_deref(),
            client_key: config.client_key.as_deref(),
            timeout,
            schemes: SCHEMES,
            wanted: if speaks_amqp(config) {
                "supported: Duly speaks STOMP to ActiveMQ and no AMQP 1.0 yet: write stomp://host:61613, and \
                 enable the broker's STOMP connector"
            } else {
                WANTED
            },
        };
        match Address::read(&written, &mut faults) {
            Some(address) if faults.is_empty() => {
                Ok(Self { address, destination: config.destination, timeout })
            }
            _ => Err(faults),
        }
    }
}

fn speaks_amqp(config: &ActivemqConfig) -> bool {
    let schemes = ["amqp10://", "amqp10s://", "amqp://", "amqps://"];
    config.url.0.iter().any(|url| schemes.iter().any(|scheme| url.reveal().starts_with(scheme)))
}
