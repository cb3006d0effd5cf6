//! The configuration of a webhook, as written.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use duly_core::{Clock, Invalid};
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use super::{WebhookSink, settings::Settings};
use crate::{OneOrMany, Secret, Span};

/// A request is answered within this, unless the configuration says otherwise: a second less than a lane waits.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Messages of one call to a sink with a url, unless the configuration says otherwise. The four calls of a lane are as many
/// requests as one origin gets.
const PARALLEL: usize = 32;
/// The same where every message names its address: those that do not answer share the room with all others.
const PARALLEL_TO_MANY: usize = 128;
/// Requests to one origin at the same time, unless the configuration says otherwise.
const PER_ORIGIN: usize = 128;

/// Whoever writes the setting means requests to be signed.
fn at_least_one<'de, D: Deserializer<'de>>(input: D) -> Result<OneOrMany<Secret>, D::Error> {
    let secrets = OneOrMany::<Secret>::deserialize(input)?;
    if secrets.0.is_empty() {
        return Err(de::Error::custom(
            "an empty list signs nothing: leave the setting out, or give a secret",
        ));
    }
    Ok(secrets)
}

/// An HTTP endpoint, as it is written in the configuration. Everything is optional but one of `url` and `allow_urls`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookConfig {
    /// The base address; a message's topic is the path below it. Secret, as many such addresses hold a token.
    pub url: Option<Secret>,
    /// `POST` (the default) or `PUT`.
    pub method: Option<String>,
    /// Headers of every request, such as `authorization`.
    pub headers: BTreeMap<String, Secret>,
    /// What requests are signed with, the Standard-Webhooks way: `whsec_<base64>` or plain text. Several while one
    /// takes the place of another.
    #[serde(deserialize_with = "at_least_one")]
    pub secret: OneOrMany<Secret>,
    /// Whole addresses that a topic may be, such as `https://*.example.com/hooks/*`.
    pub allow_urls: Vec<String>,
    /// Whether requests may go to addresses that are not public: none, all, or these networks.
    pub allow_private: AllowPrivate,
    /// Which 4xx answers mean that this message will never be taken.
    pub permanent: Permanent,
    /// How long one request may take.
    pub request_timeout: Option<Span>,
    /// Messages of one call, unless the lane's `batch` says otherwise. All its requests begin at once.
    pub parallel: Option<usize>,
    /// Requests to one origin at the same time, of all calls.
    pub per_origin: Option<usize>,
    /// A PEM file with certificate authorities that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate by which we prove who we are to `url`, the client's own first.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    pub client_key: Option<PathBuf>,
}

impl WebhookConfig {
    /// Everything that is wrong with it, each with its path below the sink.
    pub fn check(&self) -> Vec<Invalid> {
        Settings::read(self).err().unwrap_or_default()
    }

    /// The sink. It tells the time by `clock`.
    pub fn build(&self, clock: Arc<dyn Clock>) -> Result<WebhookSink, Invalid> {
        let settings = Settings::read(self).map_err(|mut faults| faults.swap_remove(0))?;
        WebhookSink::new(settings, clock)
    }

    pub(crate) fn batch(&self) -> usize {
        self.parallel.unwrap_or(if self.url.is_some() { PARALLEL } else { PARALLEL_TO_MANY })
    }

    pub(super) fn per_origin(&self) -> usize {
        self.per_origin.unwrap_or(PER_ORIGIN)
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout.map_or(REQUEST_TIMEOUT, |span| span.0)
    }
}

/// Which addresses that are not public requests may go to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllowPrivate {
    /// `false`: none.
    #[default]
    None,
    /// `true`: all.
    All,
    /// Those in these networks, each as `10.0.0.0/8`.
    Networks(Vec<String>),
}

impl<'de> Deserialize<'de> for AllowPrivate {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = AllowPrivate;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a list of networks such as [\"10.0.0.0/8\"]")
            }
            fn visit_bool<E: de::Error>(self, all: bool) -> Result<AllowPrivate, E> {
                Ok(if all { AllowPrivate::All } else { AllowPrivate::None })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<AllowPrivate, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(AllowPrivate::Networks)
            }
        }
        input.deserialize_any(Written)
    }
}

/// Which 4xx answers mean that this message will never be taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Permanent {
    /// All but those that a later try may change, see the documentation of the sink.
    #[default]
    Usual,
    /// `"none"`: every one is tried again.
    None,
    /// These and no others.
    These(Vec<u16>),
}

impl<'de> Deserialize<'de> for Permanent {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = Permanent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"usual\", \"none\", or a list of statuses such as [400, 410]")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<Permanent, E> {
                match word {
                    "usual" => Ok(Permanent::Usual),
                    "none" => Ok(Permanent::None),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Permanent, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Permanent::These)
            }
        }
        input.deserialize_any(Written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_of_secrets_is_refused() {
        assert!(toml::from_str::<WebhookConfig>("secret = ['a']").is_ok());
        assert!(toml::from_str::<WebhookConfig>("").is_ok());
        let refused = toml::from_str::<WebhookConfig>("secret = []").unwrap_err();
        assert!(refused.to_string().contains("leave the setting out"), "{refused}");
    }
}
