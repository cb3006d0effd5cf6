//! Names of keys that applications may not use.

/// What the keys begin with of the store, of its index, and of the marks beside streams.
const DULY: &str = "duly:";
/// What the keys begin with of locks, timers and records of `redis-mq`.
const REDIS_MQ: &str = "redis-mq:";
/// What follows the topic in braces in the keys of a consumer group of `redis-mq`.
const OF_A_GROUP: &str = "}:mq:";

/// Whose key this would be, if it is not free for applications: a topic of that name would turn a key that Duly or `redis-mq` works with
/// into a stream, and stop whoever reads it.
pub fn reserved_for(key: &str) -> Option<&'static str> {
    if key.starts_with(DULY) {
        return Some("Duly");
    }
    let is_of_a_group = key.starts_with('{') && key.contains(OF_A_GROUP);
    (key.starts_with(REDIS_MQ) || is_of_a_group).then_some("redis-mq")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_duly_and_of_redis_mq_are_reserved_and_no_others() {
        for key in
            ["duly:{main}:paused", "duly:{main:3}:wait", "duly:mark:{orders}:1", "duly:rights:{a}:", "duly:"]
        {
            assert_eq!(reserved_for(key), Some("Duly"), "{key}");
        }
        for key in [
            "redis-mq:lock:{a}",
            "redis-mq:timers:{a}:b:due",
            "{order}:mq:counts:normal:g",
            "{a}b}:mq:due:low:g",
        ] {
            assert_eq!(reserved_for(key), Some("redis-mq"), "{key}");
        }
        for key in [
            "duly",
            "orders",
            "my-duly:x",
            "Duly:x",
            "{order}:high",
            "{order}:low",
            "order_dlq",
            "{a}:mqtt:b",
            "a}:mq:b",
        ] {
            assert_eq!(reserved_for(key), None, "{key}");
        }
    }
}
