//! Lua scripts: every change of more than one key is atomic.
//!
//! Scripts that settle, reclaim and trim run also when Redis is out of memory: otherwise handled entries would be
//! handled again for ever, and nothing could free memory.

use std::sync::LazyLock;

use redis::Script;

/// A script of a consumer group, with the keys that `prelude.lua` documents.
macro_rules! group_script {
    ($name:ident, $file:literal) => {
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                "#!lua flags=allow-oom\n",
                include_str!("prelude.lua"),
                "\n",
                include_str!($file)
            ))
        });
    };
}

/// A script with keys of its own.
macro_rules! standalone_script {
    ($name:ident, $file:literal, $header:literal) => {
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($header, "\n", include_str!($file))));
    };
}

group_script!(ACK, "ack.lua");
group_script!(FAIL, "fail.lua");
group_script!(DEAD_LETTER, "dead_letter.lua");
group_script!(REQUEUE, "requeue.lua");
group_script!(DUE, "due.lua");
group_script!(LOAD, "load.lua");
group_script!(RECLAIM, "reclaim.lua");
group_script!(BEGIN_ATTEMPT, "begin_attempt.lua");
group_script!(HEARTBEAT, "heartbeat.lua");
group_script!(LEAVE, "leave.lua");
group_script!(REMOVE_IDLE_CONSUMERS, "remove_idle_consumers.lua");
group_script!(STATS, "stats.lua");
standalone_script!(TRIM, "trim.lua", "#!lua flags=allow-oom");
standalone_script!(READ_ORDERED, "read_ordered.lua", "#!lua flags=allow-oom");
standalone_script!(LEADER, "leader.lua", "#!lua flags=allow-oom");
// Without `allow-oom`, because it adds an entry.
standalone_script!(REPLAY, "replay.lua", "#!lua");
