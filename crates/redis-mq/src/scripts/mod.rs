//! Every change of more than one thing is a script: it happens as a whole or not at all.
//!
//! What settles, takes over and trims is allowed when Redis has no memory left: otherwise what is done would be done again for
//! ever, and nothing that frees memory would run.

use std::sync::LazyLock;

use redis::Script;

/// Within the group of a stream: the keys are those of `prelude.lua`.
macro_rules! of_a_group {
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

/// With keys of its own.
macro_rules! alone {
    ($name:ident, $file:literal, $header:literal) => {
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($header, "\n", include_str!($file))));
    };
}

of_a_group!(ACK, "ack.lua");
of_a_group!(FAIL, "fail.lua");
of_a_group!(BURY, "bury.lua");
of_a_group!(AGAIN, "again.lua");
of_a_group!(DUE, "due.lua");
of_a_group!(TAKE, "take.lua");
of_a_group!(BEGIN, "begin.lua");
of_a_group!(BEAT, "beat.lua");
of_a_group!(LEAVE, "leave.lua");
of_a_group!(CONSUMERS, "consumers.lua");
of_a_group!(STATS, "stats.lua");
alone!(TRIM, "trim.lua", "#!lua flags=allow-oom");
alone!(NEXT, "next.lua", "#!lua flags=allow-oom");
alone!(READER, "reader.lua", "#!lua flags=allow-oom");
// Adds an entry.
alone!(REPLAY, "replay.lua", "#!lua");
