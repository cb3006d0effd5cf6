//! The configuration of a sink into MQTT, as written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use duly_core::{Clock, Invalid};
use serde::Deserialize;

use super::{MqttSink, settings::Settings};
use crate::{Finding, OneOrMany, Secret, Span};

/// One call ends within this, unless the configuration says otherwise: a second less than a lane waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Messages of one call: as many are on their way at once as the broker allows.
const BATCH: usize = 256;

/// MQTT, as it is written in the configuration. Everything is optional but `url`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MqttConfig {
    /// `mqtt://host`, `mqtts://host`, several hosts after commas or as a list. Secret, as it may hold a password.
    pub url: OneOrMany<Secret>,
    /// The version of the protocol.
    pub version: MqttVersion,
    /// The quality of service: 1 or 2. 1 if not set.
    pub qos: Option<u8>,
    /// With version 3.1.1, which has no place for them: lets tag, key and properties go instead of refusing the message.
    pub drop_headers: bool,
    /// How long one call may take.
    pub request_timeout: Option<Span>,
    /// A PEM file with the certificate authorities that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate by which we prove who we are, and its chain.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
    /// What the first connection is called; those beside it have `-1`, `-2` and so on at the end. If not set, the broker
    /// chooses.
    pub client_id: Option<String>,
    /// Whether a connection begins without what the broker kept of one of the same name. `true` if not set.
    pub clean_start: Option<bool>,
}

/// The version of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum MqttVersion {
    /// 5.0.
    #[default]
    #[serde(rename = "5")]
    V5,
    /// 3.1.1, by which only topic and body arrive.
    #[serde(rename = "3.1.1")]
    V3,
}

impl MqttConfig {
    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        Settings::read(self).err().unwrap_or_default()
    }

    /// The sink. It tells the time by `clock`, and connects when it is needed.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<MqttSink, Invalid> {
        let settings = Settings::read(self).map_err(|mut faults| faults.swap_remove(0))?;
        Ok(MqttSink::new(settings, clock))
    }

    /// Warnings about settings that are valid and unusual.
    pub(crate) fn inspect(&self) -> Vec<Finding> {
        let is_old = self.version == MqttVersion::V3;
        let remark = || {
            Finding {
            detail: "version 3.1.1 has no reason codes: a broker may acknowledge what we are not allowed to publish and \
                     throw it away; and no id travels by which a consumer could know a copy"
                .into(),
            remedy: "write version = \"5\", if the broker speaks it".into(),
        }
        };
        is_old.then(remark).into_iter().collect()
    }

    pub(crate) fn batch(&self) -> usize {
        BATCH
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout.map_or(REQUEST_TIMEOUT, |span| span.0)
    }
}
