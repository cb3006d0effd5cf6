//! A message as RocketMQ has it.

use std::collections::BTreeMap;

use duly_core::{ErrorCode, Invalid, StoredMessage};

use super::{
    namesrv::Queue,
    properties::CONTENT_TYPE,
    route::{MADE_QUEUES, TEMPLATE},
};

/// The longest name of a topic.
const TOPIC_MAX: usize = 127;
/// Topics that brokers keep for themselves. They refuse messages to some; to the others they would do harm.
const SYSTEM_TOPICS: &[&str] = &[
    TEMPLATE,
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
];
/// And topics of consumer groups, which hold what is to be tried again, and dead letters.
const SYSTEM_PREFIXES: &[&str] = &["rmq_sys_", "%RETRY%", "%DLQ%"];
/// Under this name brokers know us.
const GROUP: &str = "duly";
/// Property names that brokers and clients reserve. A property of such a name would change how a message is handled.
const RESERVED: &[&str] = &[
    "KEYS",
    "TAGS",
    "WAIT",
    "DELAY",
    "RETRY_TOPIC",
    "REAL_TOPIC",
    "REAL_QID",
    "TRAN_MSG",
    "PGROUP",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "BUYER_ID",
    "ORIGIN_MESSAGE_ID",
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    "RECONSUME_TIME",
    "MSG_REGION",
    "UNIQ_KEY",
    "TRACE_ON",
    "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME",
    "POP_CK",
    "POP_CK_OFFSET",
    "1ST_POP_TIME",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "DUP_INFO",
    "CLUSTER",
    "MSG_TYPE",
    "INSTANCE_ID",
    "CORRELATION_ID",
    "REPLY_TO_CLIENT",
    "TTL",
    "ARRIVE_TIME",
    "PUSH_REPLY_TIME",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "INNER_NUM",
    "INNER_BASE",
    "INNER_NUM_",
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
    "TIMER_OUT_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DELAY_LEVEL",
    "TIMER_DELIVER_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "BORN_HOST",
    "BORN_TIMESTAMP",
    "LITE_TOPIC",
];
const OURS: &str = "duly-";

/// Why no broker has such a topic for us, if it is so.
pub(super) fn topic_fault(topic: &str) -> Option<String> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '%' | '|');
    if topic.is_empty() || topic.len() > TOPIC_MAX || !topic.chars().all(is_letter) {
        return Some(format!(
            "{topic:?} is no name for a topic: at most {TOPIC_MAX} letters a-z A-Z, digits, -, _, % and |"
        ));
    }
    let is_system =
        SYSTEM_TOPICS.contains(&topic) || SYSTEM_PREFIXES.iter().any(|some| topic.starts_with(some));
    is_system.then(|| format!("{topic:?} is a topic of RocketMQ's own"))
}

/// Why no topic takes this message, if it is so.
pub(super) fn check(message: &StoredMessage) -> Result<(), Invalid> {
    if let Some(detail) = topic_fault(message.topic.as_str()) {
        return Err(Invalid::new(ErrorCode::BadTopic, "topic", detail));
    }
    if message.body.is_empty() {
        return Err(Invalid::new(ErrorCode::BadBody, "body", "RocketMQ takes no message without a body"));
    }
    for (name, value) in message.properties.iter() {
        let is_taken = name == CONTENT_TYPE || name.starts_with(OURS) || name.starts_with("__");
        if is_taken || RESERVED.contains(&name) {
            let detail = format!("RocketMQ or Duly has a property {name:?} of its own: give it another name");
            return Err(Invalid::property(name, detail));
        }
        if value.is_empty() {
            let detail = format!("RocketMQ keeps no property without a value, and {name:?} is empty");
            return Err(Invalid::property(name, detail));
        }
    }
    Ok(())
}

/// The heartbeat of a producer.
pub(super) fn heartbeat() -> String {
    format!(r#"{{"clientID":"{GROUP}","consumerDataSet":[],"producerDataSet":[{{"groupName":"{GROUP}"}}]}}"#)
}

/// The fields of a request that sends one message, or a batch, to this queue.
pub(super) fn fields(
    topic: &str,
    queue: &Queue,
    properties: String,
    is_batch: bool,
    now_ms: u64,
) -> BTreeMap<&'static str, String> {
    let number = |number: u64| number.to_string();
    BTreeMap::from([
        ("a", GROUP.to_owned()),
        ("b", topic.to_owned()),
        ("c", TEMPLATE.to_owned()),
        ("d", MADE_QUEUES.to_string()),
        ("e", number(u64::from(queue.number))),
        ("f", "0".to_owned()),
        ("g", number(now_ms)),
        ("h", "0".to_owned()),
        ("i", properties),
        ("j", "0".to_owned()),
        ("k", "false".to_owned()),
        ("l", "0".to_owned()),
        ("m", is_batch.to_string()),
        ("n", queue.broker.to_string()),
    ])
}

/// The place of a key among `count` queues: the one that RocketMQ's own selector by hash chooses.
pub(super) fn queue_index(key: &str, count: usize) -> usize {
    // Java's hash of a text.
    let hash =
        key.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // Java keeps the sign of the number that is divided.
    let count = i64::try_from(count).unwrap_or(i64::MAX).max(1);
    usize::try_from((i64::from(hash) % count).abs()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_place_that_java_gives_it() {
        // "customer-7".hashCode() is -1581185528; "polygenelubricants".hashCode() is the least number of all.
        assert_eq!(queue_index("customer-7", 7), 1_581_185_528 % 7);
        assert_eq!(queue_index("polygenelubricants", 4), 0);
        assert_eq!(queue_index("", 4), 0);
    }
}
