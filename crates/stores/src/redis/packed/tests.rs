//! What is packed is read back, and scripts call things the same.

use super::*;

#[test]
fn rubbish_is_refused_not_read() {
    let id = || MessageId::parse("a").unwrap();
    let mut message =
        StoredMessage::new(id(), "kafka".parse().unwrap(), "t".parse().unwrap(), Timestamp::from_millis(5));
    message.tag = Some("red".parse().unwrap());
    let whole = pack(&message, Timestamp::from_millis(3));
    assert_eq!(unpack(id(), &whole.clone().into()).unwrap().record.message, message);
    for len in 0..whole.len() {
        assert!(unpack(id(), &Bytes::copy_from_slice(&whole[..len])).is_err(), "{len} bytes");
    }
}

#[test]
fn the_plainest_message_costs_twenty_three_bytes_and_what_it_carries() {
    let mut message = StoredMessage::new(
        MessageId::parse("a").unwrap(),
        SinkName::queue(),
        "work".parse().unwrap(),
        Timestamp::MAX,
    );
    message.body = Body::text("hello");
    let packed = pack(&message, Timestamp::from_millis(3));
    assert_eq!(packed.len(), FIXED + "work".len() + 6 + "hello".len());
}

#[test]
fn what_was_packed_before_there_was_a_time_of_acceptance_is_still_read() {
    let id = || MessageId::parse("a").unwrap();
    let mut message =
        StoredMessage::new(id(), "kafka".parse().unwrap(), "t".parse().unwrap(), Timestamp::MAX);
    message.properties.set("color", "red").unwrap();
    message.body = Body::text("hello");
    let now = Timestamp::from_millis(3);
    let mut packed = pack(&message, now);
    assert_eq!(unpack(id(), &packed.clone().into()).unwrap().record.accepted, Some(now));
    let after_lane = FIXED + "kafka".len();
    packed.drain(after_lane..after_lane + 6);
    packed[0] &= !ACCEPTED;
    let record = unpack(id(), &packed.into()).unwrap().record;
    assert_eq!((record.message, record.accepted), (message, None));
}

#[test]
fn scripts_and_this_file_call_a_lost_claim_the_same() {
    let prelude = include_str!("../scripts/prelude.lua");
    assert!(prelude.contains(&format!("local LOST, ALONE = {}, ", Outcome::Lost as u8)));
}

#[test]
fn scripts_and_this_file_call_a_deferral_the_same() {
    let prelude = include_str!("../scripts/prelude.lua");
    assert!(prelude.contains(&format!("local DEFERRED = '{}'\n", Attempt::DEFERRED_DETAIL_PREFIX)));
    assert!(prelude.contains(&format!("local KEPT_MAX = {}\n", Attempt::KEPT_MAX)));
    let uncounted = Outcome::ALL.into_iter().filter(|outcome| !outcome.counts());
    let uncounted: Vec<_> = uncounted.map(|outcome| format!("[{}] = true", outcome as u8)).collect();
    assert!(prelude.contains(&format!("local UNCOUNTED = {{ {} }}\n", uncounted.join(", "))));
}
