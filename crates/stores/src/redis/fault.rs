//! Errors of Redis, sorted by what the caller does next.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use duly_core::store::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Sorts an error of a call to Redis. Whatever has no better name is tried again.
pub(super) fn sorted(error: &RedisError) -> StoreError {
    use StoreErrorKind::{Damaged, Full, Unanswered, Unavailable};
    let code = code_of(error);
    if let Some((kind, what)) = of_script(error).filter(|_| code.as_deref() == Some("ERR")) {
        return StoreError::new(kind, format!("{what} ({error})")).with_source(error.clone());
    }
    let (kind, what) = match (code.as_deref(), error.kind()) {
        (Some("OOM"), _) => (
            Full,
            "Redis is out of memory and takes no new messages; raise its maxmemory, or wait until some are delivered",
        ),
        (Some("DULYGONE"), _) => return data_lost(error).with_source(error.clone()),
        (Some("WRONGTYPE"), _) => (
            Damaged,
            "a key of this store holds something of another type: something else wrote to it; find it by TYPE and remove it",
        ),
        (Some("NOREPLICAS"), _) => {
            (Unavailable, "Redis has fewer replicas than its min-replicas-to-write and refuses changes")
        }
        (Some("NOAUTH" | "WRONGPASS"), _) | (_, ErrorKind::AuthenticationFailed) => {
            (Unavailable, "Redis does not accept the user or password of its address")
        }
        (Some("NOPERM"), _) => (Unavailable, "Redis does not let this user run what Duly needs"),
        (Some("MISCONF"), _) => (Unavailable, "Redis cannot write to its disk and refuses changes"),
        (_, ErrorKind::Server(ServerErrorKind::BusyLoading)) => {
            (Unavailable, "Redis is still reading its data")
        }
        (_, ErrorKind::Server(ServerErrorKind::ReadOnly)) => {
            (Unavailable, "this Redis is a replica now; waiting for the new master")
        }
        (_, ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown)) => {
            (Unavailable, "the Redis Cluster is not whole")
        }
        (_, ErrorKind::UnexpectedReturnType | ErrorKind::Parse) => {
            (Damaged, "Redis answered what Duly does not understand")
        }
        _ if error.is_connection_refusal() => (Unavailable, "Redis cannot be reached"),
        _ if error.is_timeout() => {
            (Unanswered, "Redis gave no answer in time; what it was asked for may have been done")
        }
        // A refusal by the server has a code. Anything else of a connection came after something was written to it.
        _ if error.is_io_error() && code.is_none() => (
            Unanswered,
            "the connection to Redis was lost before an answer came; what it was asked for may have been done",
        ),
        _ => (Unavailable, "Redis cannot be reached"),
    };
    StoreError::new(kind, format!("{what} ({error})")).with_source(error.clone())
}

/// Which faults of the data have been logged. Once of each kind is enough: every call would report it again.
#[derive(Debug, Default)]
pub(super) struct LoggedFaults {
    removed: AtomicBool,
    damaged: AtomicBool,
}

impl LoggedFaults {
    /// Whether this is a fault of the data, and the first of its kind.
    pub(super) fn is_first_of_its_kind(&self, fault: &StoreError) -> bool {
        let logged = if is_gone(fault) { &self.removed } else { &self.damaged };
        fault.kind == StoreErrorKind::Damaged && !logged.swap(true, Relaxed)
    }
}

/// Error texts of Redis and Lua about a value of another type.
const WRONG_VALUES: [&str; 8] = [
    "not an integer",
    "not a valid float",
    "not a float",
    "would overflow",
    "attempt to ",
    "bad argument",
    "too short",
    "number expected",
];

/// The kind and meaning of an error that ended a script.
fn of_script(error: &RedisError) -> Option<(StoreErrorKind, &'static str)> {
    let detail = error.detail().unwrap_or_default();
    let says = |words: &str| detail.contains(words);
    // Redis names the line in which a script ended. That the user may not run a command is no damage.
    if !says("user_script:") || says("ACL failure") {
        return None;
    }
    if says("killed by user") {
        // Redis lets nobody end a script that has written.
        let what = "a script of Duly was ended by SCRIPT KILL; nothing is changed";
        return Some((StoreErrorKind::Unavailable, what));
    }
    if says("not enough memory") {
        let what =
            "Redis had no memory for a script of Duly to go on; what it was asked for may have been done";
        return Some((StoreErrorKind::Unanswered, what));
    }
    // It would fail at every call, and not because the server cannot be reached: only its shard waits.
    let what = if WRONG_VALUES.into_iter().any(says) {
        "a key of this store holds what Duly did not write there: something else wrote to it, and a script fails on it"
    } else {
        "a script of Duly failed in Redis and would at every call; please report it with this text"
    };
    Some((StoreErrorKind::Damaged, what))
}

/// The code of the server's refusal; of a pipeline, that of the first command that was refused.
fn code_of(error: &RedisError) -> Option<String> {
    let own = error.code().map(str::to_owned);
    own.or_else(|| Some(error.clone().into_server_errors()?.first()?.1.code().to_owned()))
}

/// The same for a call that the connection may have sent twice: the result of the first try is unknown.
pub(super) fn repeated(error: &RedisError) -> StoreError {
    let fault = sorted(error);
    if fault.kind == StoreErrorKind::Unavailable {
        return fault
            .of_kind(StoreErrorKind::Unanswered)
            .in_words(|what| format!("{what}; an earlier try of the same call may have been done"));
    }
    fault.when_under_way()
}

/// The same for an error while connecting: nothing was sent.
pub(super) fn connect_failed(error: &RedisError) -> StoreError {
    let fault = sorted(error);
    match fault.kind {
        StoreErrorKind::Unanswered => {
            StoreError::new(StoreErrorKind::Unavailable, format!("Redis cannot be reached ({error})"))
                .with_source(error.clone())
        }
        _ => fault,
    }
}

const DATA_LOST: &str = "Duly's data is gone from Redis, by FLUSHALL or the like; what was waiting there is lost. \
                    Restore it, or restart this process to begin with an empty store";

/// The error of a change when Redis is out of memory. The caller's disk is not full, and deliveries make room.
pub(super) fn for_caller(error: StoreError) -> StoreError {
    if error.kind == StoreErrorKind::Full { error.of_kind(StoreErrorKind::Unavailable) } else { error }
}

/// Somebody emptied Redis.
pub(super) fn data_lost(seen: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Damaged, format!("{DATA_LOST} ({seen})"))
}

/// Whether Redis has lost the data of a store or of one of its shards, as after FLUSHALL.
pub fn is_gone(error: &StoreError) -> bool {
    // An error of one part names the part first.
    error.what.contains(DATA_LOST)
}

/// An answer of a script, or a packed message, has another format.
pub(super) fn garbled(what: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format!("{what} in Redis is not what Duly wrote there; has something else changed its keys?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_says_what_to_do_next() {
        let server = |line: &str| {
            let (code, detail) = line.split_once(' ').unwrap();
            redis::make_extension_error(code.into(), Some(detail.into()))
        };
        assert_eq!(sorted(&server("OOM command not allowed")).kind, StoreErrorKind::Full);
        assert_eq!(sorted(&server("DULYGONE gone")).kind, StoreErrorKind::Damaged);
        assert!(is_gone(&sorted(&server("DULYGONE gone"))));
        assert_eq!(sorted(&server("MISCONF disk")).kind, StoreErrorKind::Unavailable);
        assert_eq!(sorted(&server("NOREPLICAS not enough")).kind, StoreErrorKind::Unavailable);
        let wrong = sorted(&server("WRONGTYPE Operation against a key"));
        assert!(wrong.kind == StoreErrorKind::Damaged && !is_gone(&wrong));
        let of_script =
            |what: &str| sorted(&server(&format!("ERR {what} script: 8426, on @user_script:1."))).kind;
        assert_eq!(of_script("hash value is not an integer"), StoreErrorKind::Damaged);
        assert_eq!(of_script("ACL failure in script: no permissions"), StoreErrorKind::Unavailable);
        assert_eq!(of_script("Script killed by user with SCRIPT KILL..."), StoreErrorKind::Unavailable);
        assert_eq!(of_script("user_script:8: not enough memory"), StoreErrorKind::Unanswered);
        assert_eq!(of_script("user_script:8: bad argument #2 to 'unpack'"), StoreErrorKind::Damaged);
        let unknown = sorted(&server("ERR unknown thing script: 8426, on @user_script:1."));
        assert!(
            unknown.kind == StoreErrorKind::Damaged && !unknown.what.contains("something else"),
            "{unknown}"
        );
        assert_eq!(sorted(&server("ERR max number of clients reached")).kind, StoreErrorKind::Unavailable);
        let io = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        assert_eq!(sorted(&io).kind, StoreErrorKind::Unavailable);
        for kind in [std::io::ErrorKind::TimedOut, std::io::ErrorKind::BrokenPipe] {
            let lost = RedisError::from(std::io::Error::from(kind));
            assert_eq!(sorted(&lost).kind, StoreErrorKind::Unanswered, "{lost}");
            assert_eq!(connect_failed(&lost).kind, StoreErrorKind::Unavailable, "{lost}");
        }
        assert_eq!(sorted(&io).in_part().kind, StoreErrorKind::Unanswered);
        assert_eq!(repeated(&io).kind, StoreErrorKind::Unanswered, "the try before it may have been done");
        let data_lost = sorted(&server("DULYGONE gone")).in_part();
        assert!(
            data_lost.kind == StoreErrorKind::Damaged && data_lost.is_maybe_done() && is_gone(&data_lost)
        );
        for error in [sorted(&io), connect_failed(&io), repeated(&io), data_lost] {
            assert!(error.cause::<RedisError>().is_some(), "{error}");
        }
    }

    #[test]
    fn data_that_is_gone_is_logged_although_a_damaged_key_was_before() {
        let (logged, damaged) = (LoggedFaults::default(), garbled("an answer"));
        assert!(logged.is_first_of_its_kind(&damaged));
        assert!(!logged.is_first_of_its_kind(&damaged));
        assert!(logged.is_first_of_its_kind(&data_lost("another generation")));
        assert!(!logged.is_first_of_its_kind(&data_lost("another generation")));
        assert!(!logged.is_first_of_its_kind(&StoreError::new(StoreErrorKind::Unavailable, "away")));
    }
}
