//! The messages to send: bodies, ids and delays, from a template.

use std::{fmt::Write as _, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};

use crate::clock;
use duly_client::wire::NewMessage;

/// A span of delays, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DelayRange {
    from_ms: u64,
    pub(crate) to_ms: u64,
}

impl DelayRange {
    /// `1s..5s`, or `1s` for always the same.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let millis = |text: &str| {
            let span = duly::parse_delay(text).map_err(|fault| fault.detail)?;
            Ok::<_, String>(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
        };
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let spread = Self { from_ms: millis(from)?, to_ms: millis(to)? };
        if spread.from_ms > spread.to_ms {
            return Err("the first delay is longer than the second".into());
        }
        Ok(spread)
    }
}

/// The messages that each connection sends.
pub(crate) struct Plan {
    /// Every id begins so: what this run sent is told from everything else.
    prefix: String,
    pub(crate) batch: usize,
    delay: DelayRange,
    /// The message up to its delay, and what follows the id.
    head: Vec<u8>,
}

impl Plan {
    pub(crate) fn new(topic: &str, sink: Option<&str>, body: usize, batch: usize, delay: DelayRange) -> Self {
        let message = NewMessage {
            topic: topic.to_owned(),
            sink: sink.map(str::to_owned),
            body: Some("x".repeat(body)),
            ..NewMessage::default()
        };
        // An object of strings: writing it cannot fail.
        let mut head = serde_json::to_vec(&message).unwrap_or_default();
        head.pop();
        head.extend_from_slice(b",\"id\":\"");
        Self { prefix: format!("bench-{:x}-", clock::now_us()), batch, delay, head }
    }

    /// The id of a connection's message of this number.
    pub(crate) fn id(&self, connection: usize, number: u64) -> String {
        format!("{}{connection}-{number}", self.prefix)
    }

    /// Which connection's message of which number has this id; none if it is not of this run.
    pub(crate) fn place(&self, id: &str) -> Option<(usize, u64)> {
        let (connection, number) = id.strip_prefix(&self.prefix)?.split_once('-')?;
        Some((connection.parse().ok()?, number.parse().ok()?))
    }

    /// The next request's body: one message, or a line each.
    pub(crate) fn fill(&self, body: &mut BytesMut, ids: &[String], dice: &mut Dice) -> Bytes {
        for id in ids {
            body.put_slice(&self.head);
            body.put_slice(id.as_bytes());
            body.put_slice(b"\",\"delay\":");
            let _ = write!(body, "{}", dice.between(self.delay.from_ms, self.delay.to_ms));
            body.put_slice(if self.batch == 1 { b"}" } else { b"}\n" });
        }
        body.split().freeze()
    }

    pub(crate) fn longest(&self) -> Duration {
        Duration::from_millis(self.delay.to_ms)
    }
}

/// Numbers that look drawn; good enough to spread load.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        from + self.0 % (to - from + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_what_the_server_takes() {
        let plan = Plan::new("bench", Some("crm"), 10, 2, DelayRange::parse("1s..2s").unwrap());
        let ids = ["a".to_owned(), "b".to_owned()];
        let body = plan.fill(&mut BytesMut::new(), &ids, &mut Dice::new(1));
        let lines: Vec<_> = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 2);
        for (line, id) in lines.iter().zip(ids) {
            let message: NewMessage = serde_json::from_slice(line).unwrap();
            assert_eq!((message.id, message.sink.as_deref()), (Some(id), Some("crm")));
            let delay = message.delay.unwrap().span("delay").unwrap();
            assert!((1_000..=2_000).contains(&delay.as_millis()), "{delay:?}");
        }
    }

    #[test]
    fn an_id_leads_back_to_its_place() {
        let plan = Plan::new("bench", None, 1, 1, DelayRange::parse("1s").unwrap());
        assert_eq!(plan.place(&plan.id(7, 12_345)), Some((7, 12_345)));
        assert_eq!(plan.place("bench-of-somebody-else-1-2"), None);
    }

    #[test]
    fn a_spread_has_two_ends_in_order() {
        assert_eq!(DelayRange::parse("1s").unwrap(), DelayRange { from_ms: 1_000, to_ms: 1_000 });
        assert!(DelayRange::parse("5s..1s").is_err() && DelayRange::parse("..").is_err());
    }
}
