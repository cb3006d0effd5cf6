//! The body of a batch: its messages one after the other, as `MessageDecoder.encodeMessages` of RocketMQ's client writes them.

use bytes::{BufMut, BytesMut};
use duly_core::Delivery;

use super::properties;

/// Bytes of a message besides its body and its properties: six numbers.
const FRAME: usize = 4 + 4 + 4 + 4 + 4 + 2;
/// Maximum of bytes of properties. A broker takes 32 KiB of them together with what it adds, and in a batch it does not check that: it reads a
/// longer text as one of another length, and fails, or stores something else.
const PROPERTIES_MAX: usize = 31 * 1024;

/// Whether this message may be part of a batch.
///
/// A broker batches no delayed and no transactional messages, none of a group's retry topic, and only those that wait alike for what it does
/// with them: all of ours are so. One that was tried before goes alone, so that whatever it does to a broker befalls others once.
pub(super) fn may_have(delivery: &Delivery) -> bool {
    delivery.attempt <= 1 && properties::len_max(delivery) <= PROPERTIES_MAX
}

/// Bytes of a message in a batch, at most.
pub(super) fn len_max(delivery: &Delivery) -> usize {
    FRAME + delivery.message.body.len() + properties::len_max(delivery)
}

/// The body of a batch of these.
pub(super) fn body<'a>(messages: impl Iterator<Item = &'a Delivery> + Clone) -> BytesMut {
    let mut out = BytesMut::with_capacity(messages.clone().map(len_max).sum());
    for delivery in messages {
        add(&mut out, delivery.message.body.as_bytes(), &properties::text(delivery));
    }
    out
}

fn add(out: &mut BytesMut, body: &[u8], properties: &str) {
    out.put_u32((FRAME + body.len() + properties.len()) as u32);
    // A magic number and a checksum, which the broker makes itself.
    out.put_u32(0);
    out.put_u32(0);
    // The flag, which is the application's and which we have no use for.
    out.put_u32(0);
    out.put_u32(body.len() as u32);
    out.put_slice(body);
    // Short enough: see `may_have`.
    out.put_u16(properties.len() as u16);
    out.put_slice(properties.as_bytes());
}

#[cfg(test)]
mod tests {
    use duly_core::{Body, StoredMessage, Timestamp};

    use super::*;

    /// What `MessageDecoder.encodeMessages` of rocketmq-common makes of a message with the body `01 ff 00` and the property `KEYS=a`, and one with
    /// the body `déjà` and the property `k=ü`.
    const TWO: &[u8] = b"\x00\x00\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x01\xff\x00\x00\x07KEYS\x01a\x02\
        \x00\x00\x00\x21\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x06d\xc3\xa9j\xc3\xa0\x00\x05k\x01\xc3\xbc\x02";

    #[test]
    fn messages_stand_one_after_the_other_as_the_client_of_rocketmq_writes_them() {
        let mut out = BytesMut::new();
        add(&mut out, &[1, 255, 0], "KEYS\u{1}a\u{2}");
        add(&mut out, "déjà".as_bytes(), "k\u{1}ü\u{2}");
        assert_eq!(&out[..], TWO);
    }

    fn delivery(attempt: u32, value: usize) -> Delivery {
        let (id, sink, topic) = ("a".parse().unwrap(), "rocket".parse().unwrap(), "orders".parse().unwrap());
        let mut message = StoredMessage::new(id, sink, topic, Timestamp::from_millis(1));
        message.body = Body::text("body");
        for n in 0..8 {
            message.properties.set(&format!("p{n}"), &"x".repeat(value)).unwrap();
        }
        Delivery::new(message, attempt)
    }

    #[test]
    fn a_batch_is_no_longer_than_was_said_and_says_how_long_each_is() {
        let all = [delivery(1, 1), delivery(1, 3_000)];
        let body = body(all.iter());
        assert!(body.len() <= all.iter().map(len_max).sum());
        let first = u32::from_be_bytes(*body.first_chunk().unwrap()) as usize;
        let second = u32::from_be_bytes(*body[first..].first_chunk().unwrap()) as usize;
        assert_eq!(first + second, body.len());
    }

    #[test]
    fn what_was_tried_before_and_what_has_long_properties_is_in_no_batch() {
        assert!(may_have(&delivery(1, 3_900)));
        assert!(!may_have(&delivery(2, 1)) && !may_have(&delivery(1, 4_000)));
    }
}
