//! The configuration of a sink into MQTT, as used.

use std::time::Duration;

use duly_core::Invalid;

use super::config::{MqttConfig, MqttVersion};
use crate::wires::{Address, Scheme, Written};

const SCHEMES: &[Scheme] = &[("mqtt", false, 1883), ("mqtts", true, 8883)];
const WANTED: &str = "a URL such as mqtt://user:password@127.0.0.1:1883 or mqtts://host";

/// Everything set, everything checked.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) version: MqttVersion,
    pub(super) qos: Qos,
    pub(super) drop_headers: bool,
    pub(super) timeout: Duration,
}

/// The quality of service: an acknowledged one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Qos {
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl Settings {
    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &MqttConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Vec::new();
        let timeout = config.request_timeout();
        let written = Written {
            url: config.url.as_ref(),
            ca: config.ca.as_deref(),
            timeout,
            schemes: SCHEMES,
            wanted: WANTED,
        };
        let address = Address::read(&written, &mut faults);
        let mut fault = |path: &str, detail: &str| faults.push(Invalid::new("bad_sink", path, detail));
        let qos = match config.qos {
            None | Some(1) => Qos::AtLeastOnce,
            Some(2) => Qos::ExactlyOnce,
            Some(_) => {
                fault("qos", "1 or 2: with 0 nobody would know whether a message arrived");
                Qos::AtLeastOnce
            }
        };
        if config.drop_headers && config.version == MqttVersion::V5 {
            fault("drop_headers", "version 5 carries them all: leave it out");
        }
        match address {
            Some(address) if faults.is_empty() => {
                let (version, drop_headers) = (config.version, config.drop_headers);
                Ok(Self { address, version, qos, drop_headers, timeout })
            }
            _ => Err(faults),
        }
    }
}
