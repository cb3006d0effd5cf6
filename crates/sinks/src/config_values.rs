//! Forms of values that several sinks are configured with.

#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats"))]
use std::borrow::Cow;
use std::{fmt, marker::PhantomData, time::Duration};

use duly_core::Secret;
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

/// One value, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMany<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(de::value::StrDeserializer::new(text)).map(|one| OneOrMany(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany)
            }
        }
        input.deserialize_any(Either(PhantomData))
    }
}

/// Hosts are written as one text with commas between, as a list, or as a list of such texts: all of them mean the same.
#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats", feature = "rabbitmq"))]
impl OneOrMany<Secret> {
    /// A URL for each host: `scheme://user@a,b/path` is two.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().flat_map(|url| per_host(url.reveal())).collect()
    }
}

#[cfg(any(feature = "kafka", feature = "rocketmq"))]
impl OneOrMany<String> {
    /// Each as `host:port`; `None` if one of them is not.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        // A semicolon is what RocketMQ's own clients take.
        let each = self.0.iter().flat_map(|text| text.split([',', ';'])).map(str::trim);
        each.map(|one| is_address(one).then(|| one.to_owned())).collect()
    }
}

#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats", feature = "rabbitmq"))]
fn per_host(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    // A password may hold a slash, a comma or an @ that somebody forgot to escape.
    let (who, place) = rest.rfind('@').map_or(("", rest), |at| rest.split_at(at + 1));
    let (hosts, tail) = place.find(['/', '?', '#']).map_or((place, ""), |end| place.split_at(end));
    hosts.split(',').map(|host| format!("{scheme}://{who}{}{tail}", host.trim())).collect()
}

#[cfg(any(feature = "kafka", feature = "rocketmq"))]
/// A host that is not empty, and a port after the last colon.
fn is_address(text: &str) -> bool {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', ' ']);
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port))
}

#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats"))]
/// The text without its escapes: `%40` is an `@`. `None` if a `%` is no escape or the bytes are not UTF-8: a password that holds
/// a bare `%` would otherwise be another one.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let is_escape = |after: &str| {
        after.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_encoding::percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// A length of time: `"7s"`, `"1m30s"`, or integer milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as \"7s\", or integer milliseconds")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                duly_core::parse_delay(text).map(Span).map_err(|fault| E::custom(fault.detail))
            }
            fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Span, E> {
                Ok(Span(Duration::from_millis(millis)))
            }
            fn visit_i64<E: de::Error>(self, millis: i64) -> Result<Span, E> {
                let millis = u64::try_from(millis).map_err(|_| E::custom("a time is not negative"))?;
                self.visit_u64(millis)
            }
        }
        input.deserialize_any(Written)
    }
}

#[cfg(all(test, feature = "nats", feature = "kafka"))]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Both {
        url: OneOrMany<Secret>,
        hosts: OneOrMany<String>,
    }

    #[test]
    fn hosts_are_a_text_with_commas_or_a_list_or_both() {
        let urls = ["a://u:p,q@h:1/v?x", "a://u:p,q@[::1]/v?x", "a://u:p,q@g/v?x"];
        let hosts = ["h:1", "[::1]:2", "g:3"];
        for written in [
            "url = 'a://u:p,q@h:1,[::1], g/v?x'\nhosts = 'h:1, [::1]:2;g:3'",
            "url = ['a://u:p,q@h:1/v?x', 'a://u:p,q@[::1]/v?x', 'a://u:p,q@g/v?x']\nhosts = ['h:1', '[::1]:2', 'g:3']",
            "url = ['a://u:p,q@h:1,[::1]/v?x', 'a://u:p,q@g/v?x']\nhosts = ['h:1,[::1]:2', 'g:3']",
        ] {
            let both: Both = toml::from_str(written).unwrap();
            assert_eq!(both.url.urls(), urls, "{written}");
            assert_eq!(both.hosts.addresses().unwrap(), hosts, "{written}");
        }
        for wrong in ["hosts", "h:0", "h:1,", "u@h:1", "http://h:1/x"] {
            assert_eq!(OneOrMany(vec![wrong.to_owned()]).addresses(), None, "{wrong}");
        }
        assert_eq!(OneOrMany(vec![Secret::new("no-url")]).urls(), ["no-url"]);
    }

    #[test]
    fn an_escape_is_two_hex_digits() {
        assert_eq!(percent_decoded("p%40s%2fs ü").unwrap(), "p@s/s ü");
        assert_eq!(percent_decoded("").unwrap(), "");
        for wrong in ["100%", "%4", "%zz", "%+f", "a%%40", "%ff", "%é"] {
            assert_eq!(percent_decoded(wrong), None, "{wrong}");
        }
    }
}
