//! The scripts, each with the prelude behind its first line.

use std::sync::LazyLock;

use redis::{Arg, Cmd};

const PRELUDE: &str = include_str!("scripts/prelude.lua");

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| whole(include_str!(concat!("scripts/", $file))));)*
    };
}

scripts! {
    INSERT = "insert.lua";
    CLAIM = "claim.lua";
    MOVE = "move.lua";
    SETTLE = "settle.lua";
    SET_ASIDE = "set_aside.lua";
    REMOVE_UNREADABLE = "remove_unreadable.lua";
    EXTEND = "extend.lua";
    CHANGE = "change.lua";
    SWEEP = "sweep.lua";
    RECOVER = "recover.lua";
    OWN = "own.lua";
    GET = "get.lua";
    PENDING = "pending.lua";
}

/// Of all shards at once.
pub(super) static CHECK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/check.lua").into()));
/// These two are about the nodes and no shard: they go without the prelude.
pub(super) static JOIN: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/join.lua").into()));
pub(super) static LEAVE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/leave.lua").into()));

/// A script that Redis knows by its hash, most of the time.
pub(super) struct Script {
    known: redis::Script,
    text: String,
}

impl Script {
    fn new(text: String) -> Self {
        Self { known: redis::Script::new(&text), text }
    }

    /// The same call with the whole text, which Redis then knows: whoever empties its scripts cannot come in between.
    pub(super) fn in_full(&self, by_hash: &Cmd) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(&self.text);
        by_hash.args_iter().skip(2).for_each(|arg| {
            if let Arg::Simple(bytes) = arg {
                cmd.arg(bytes);
            }
        });
        cmd
    }
}

impl std::ops::Deref for Script {
    type Target = redis::Script;

    fn deref(&self) -> &redis::Script {
        &self.known
    }
}

/// The first line says what Redis may assume of the script, so it stays the first.
fn whole(file: &str) -> Script {
    let (flags, rest) = file.split_once('\n').unwrap_or((file, ""));
    Script::new(format!("{flags}\n{PRELUDE}\n{rest}"))
}
