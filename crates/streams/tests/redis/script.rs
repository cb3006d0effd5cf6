//! The scripts of the library, to be found on a wire and to be asked twice.

use redis::Script;
use testkit::servers::redis::Redis;

const PRELUDE: &str = include_str!("../../src/scripts/prelude.lua");

/// A script of a consumer group.
pub(crate) fn group_script(text: &str) -> Script {
    Script::new(&format!("#!lua flags=allow-oom\n{PRELUDE}\n{text}"))
}

/// A script that can give a timer up.
pub(crate) fn of_timers(text: &str) -> Script {
    Script::new(&format!("#!lua flags=allow-oom\n{}\n{text}", include_str!("../../src/expiry/dead.lua")))
}

/// A script with keys of its own.
pub(crate) fn standalone_script(text: &str) -> Script {
    Script::new(&format!("#!lua flags=allow-oom\n{text}"))
}

/// Makes the server know it, so that the first call is not answered with `NOSCRIPT`, and answers what calls of it have on the wire.
pub(crate) fn needle(script: &Script, redis: &Redis) -> Vec<u8> {
    script.prepare_invoke().load(&mut redis.connection()).unwrap();
    script.get_hash().as_bytes().to_vec()
}
