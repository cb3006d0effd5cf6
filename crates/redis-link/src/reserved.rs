//! Names of keys that applications may not use.

/// What the keys begin with of the store, of its index, and of the marks beside streams.
const DULY: &str = "duly:";
/// What the keys begin with of locks, timers and records of `duly-streams`.
const DULY_STREAMS: &str = "duly-streams:";
/// What follows the topic in braces in the keys of a consumer group of `duly-streams`.
const OF_A_GROUP: &str = "}:duly-streams:";

/// Whose key this would be, if it is not free for applications: a topic of that name would turn a key that Duly or `duly-streams` works with
/// into a stream, and stop whoever reads it.
pub fn reserved_for(key: &str) -> Option<&'static str> {
    if key.starts_with(DULY) {
        return Some("Duly");
    }
    let is_of_a_group = key.starts_with('{') && key.contains(OF_A_GROUP);
    (key.starts_with(DULY_STREAMS) || is_of_a_group).then_some("duly-streams")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_duly_and_of_duly_streams_are_reserved_and_no_others() {
        for key in
            ["duly:{main}:paused", "duly:{main:3}:wait", "duly:mark:{orders}:1", "duly:rights:{a}:", "duly:"]
        {
            assert_eq!(reserved_for(key), Some("Duly"), "{key}");
        }
        for key in [
            "duly-streams:lock:{a}",
            "duly-streams:timers:{a}:b:due",
            "{order}:duly-streams:counts:normal:g",
            "{a}b}:duly-streams:due:low:g",
        ] {
            assert_eq!(reserved_for(key), Some("duly-streams"), "{key}");
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
            "a}:duly-streams:b",
        ] {
            assert_eq!(reserved_for(key), None, "{key}");
        }
    }
}
