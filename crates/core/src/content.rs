//! The content of a message: body and properties.

use bytes::Bytes;
use compact_str::CompactString;

use crate::{ErrorCode, Invalid};

/// The kind of a body, given by the producer; it becomes the content type at the target.
///
/// The numbers are on disk and in Redis, in two bits, and the words in databases: never change or reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum ContentKind {
    /// UTF-8 text.
    Text = 0,
    /// A JSON value.
    Json = 1,
    /// Any bytes.
    #[default]
    Bytes = 2,
}

impl ContentKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Text, Self::Json, Self::Bytes];

    /// The kind of this number, as stores write it.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The word in databases.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Bytes => "bytes",
        }
    }

    /// The MIME type.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/json",
            Self::Bytes => "application/octet-stream",
        }
    }
}

/// The body of a message. Cloning shares the bytes.
#[derive(Debug, Clone, Default)]
pub struct Body {
    kind: ContentKind,
    bytes: Bytes,
}

impl Body {
    /// A body of UTF-8 text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { kind: ContentKind::Text, bytes: Bytes::from(text.into()) }
    }

    /// A body of any bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self { kind: ContentKind::Bytes, bytes: bytes.into() }
    }

    /// A body of JSON.
    pub fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, Invalid> {
        let bytes = serde_json::to_vec(value).map_err(|e| {
            Invalid::new(ErrorCode::BadJson, "json", format!("the value cannot be written as JSON: {e}"))
        })?;
        Ok(Self { kind: ContentKind::Json, bytes: bytes.into() })
    }

    /// A body read from a store.
    pub fn from_parts(kind: ContentKind, bytes: impl Into<Bytes>) -> Self {
        Self { kind, bytes: bytes.into() }
    }

    /// Its kind.
    pub fn kind(&self) -> ContentKind {
        self.kind
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, shared.
    pub fn to_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Bodies are equal if their bytes are; the kind does not count.
impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}
impl Eq for Body {}

/// Properties by name; they become headers at the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties(Vec<(CompactString, CompactString)>);

impl Properties {
    /// Reserved names, case-insensitive: delay properties of brokers, which would delay a second time.
    pub const RESERVED: [&str; 3] = ["x-delay", "delay", "timer_deliver_ms"];
    /// Reserved prefixes, case-insensitive: Duly's own properties, and delay properties of brokers.
    pub const RESERVED_PREFIXES: [&str; 4] = ["duly-", "amq_scheduled_", "nats-schedule", "timer_delay_"];
    /// Bytes of a name.
    pub const NAME_MAX: usize = 255;
    /// Bytes of a value.
    pub const VALUE_MAX: usize = 4096;

    /// The trace of the message (W3C Trace Context). A client that repeats a send does so in another span: trace
    /// properties are carried like others, but are no part of the content.
    pub const TRACEPARENT: &str = "traceparent";
    /// See [`TRACEPARENT`](Self::TRACEPARENT).
    pub const TRACESTATE: &str = "tracestate";

    /// Checks and sets one property; a second value for a name replaces the first.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        let fault = |code, detail: String| Err(Invalid::new(code, format!("properties.{name}"), detail));
        if name.is_empty() || name.len() > Self::NAME_MAX || value.len() > Self::VALUE_MAX {
            let (names, values) = (Self::NAME_MAX, Self::VALUE_MAX);
            return fault(
                ErrorCode::BadProperty,
                format!("a name has 1 to {names} bytes and a value up to {values}"),
            );
        }
        if name.chars().any(|c| c.is_control() || c == ':')
            || value.chars().any(|c| c.is_control() && c != '\t')
        {
            return fault(ErrorCode::BadProperty, "no control characters, and no colon in a name".into());
        }
        let lower = name.to_ascii_lowercase();
        if Self::RESERVED.contains(&lower.as_str())
            || Self::RESERVED_PREFIXES.iter().any(|p| lower.starts_with(p))
        {
            return fault(
                ErrorCode::ReservedProperty,
                "Duly sets it itself, or the broker would delay a second time; leave it out".into(),
            );
        }
        self.put(name, value);
        Ok(())
    }

    /// Sets a property read back from a store, unchecked.
    pub fn put(&mut self, name: &str, value: &str) {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(place) => self.0[place].1 = value.into(),
            Err(place) => self.0.insert(place, (name.into(), value.into())),
        }
    }

    /// Removes a property, if it is there.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .binary_search_by(|(known, _)| known.as_str().cmp(name))
            .ok()
            .map(|place| self.0[place].1.as_str())
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The properties that are part of the content: all but the trace.
    pub fn of_content(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(name, _)| !matches!(*name, Self::TRACEPARENT | Self::TRACESTATE))
    }

    /// The number of properties.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_properties_are_refused_whatever_their_case() {
        let mut properties = Properties::default();
        for name in [
            "duly-id",
            "Duly-Due",
            "x-delay",
            "DELAY",
            "TIMER_DELIVER_MS",
            "AMQ_SCHEDULED_DELAY",
            "Nats-Schedule-TTL",
        ] {
            assert_eq!(properties.set(name, "1").unwrap_err().code, "reserved_property", "{name}");
        }
        assert!(properties.is_empty());
    }

    #[test]
    fn header_injection_is_refused() {
        let mut properties = Properties::default();
        for (name, value) in [("a\r\nb", "x"), ("a", "x\r\nEvil: 1"), ("a:b", "x"), ("", "x")] {
            assert_eq!(properties.set(name, value).unwrap_err().code, "bad_property", "{name:?}");
        }
    }

    #[test]
    fn properties_are_equal_in_any_order_of_setting() {
        let (mut one, mut two) = (Properties::default(), Properties::default());
        for (name, value) in [("a", "1"), ("b", "2")] {
            one.set(name, value).unwrap();
        }
        for (name, value) in [("b", "2"), ("a", "0"), ("a", "1")] {
            two.set(name, value).unwrap();
        }
        assert_eq!(one, two);
        assert_eq!(two.get("a"), Some("1"));
    }
}
