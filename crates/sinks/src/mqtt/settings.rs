//! The configuration of a sink into MQTT, as used.

use std::time::Duration;

use duly_core::{ErrorCode, Invalid};

use super::config::{MqttConfig, MqttVersion};
use crate::connection::{Address, Scheme, Written};

const SCHEMES: &[Scheme] = &[("mqtt", false, 1883), ("mqtts", true, 8883)];
const WANTED: &str = "a URL such as mqtt://user:password@127.0.0.1:1883 or mqtts://host";

/// The longest client id: room for the number of a connection is left.
const CLIENT_ID_MAX: usize = 65_000;

/// Everything set, everything checked.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) version: MqttVersion,
    pub(super) qos: Qos,
    pub(super) drop_headers: bool,
    pub(super) timeout: Duration,
    pub(super) client_id: Option<String>,
    pub(super) clean_start: bool,
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
            url: &config.url,
            ca: config.ca.as_deref(),
            client_cert: config.client_cert.as_deref(),
            client_key: config.client_key.as_deref(),
            timeout,
            schemes: SCHEMES,
            wanted: WANTED,
        };
        let address = Address::read(&written, &mut faults);
        let mut fault =
            |path: &str, detail: &str| faults.push(Invalid::new(ErrorCode::BadSink, path, detail));
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
        let client_id = config.client_id.clone();
        if client_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > CLIENT_ID_MAX || id.contains('\0'))
        {
            fault("client_id", &format!("1 to {CLIENT_ID_MAX} bytes"));
        }
        let clean_start = config.clean_start.unwrap_or(true);
        if !clean_start && client_id.is_none() {
            fault("clean_start", "a session that goes on needs a client_id to be known by");
        }
        if !clean_start && qos == Qos::ExactlyOnce {
            // The broker would take a new message for a copy of the old one with the same number, and throw it away.
            fault("clean_start", "with qos = 2 each connection must start clean, or messages get lost");
        }
        match address {
            Some(address) if faults.is_empty() => {
                let (version, drop_headers) = (config.version, config.drop_headers);
                Ok(Self { address, version, qos, drop_headers, timeout, client_id, clean_start })
            }
            _ => Err(faults),
        }
    }
}
