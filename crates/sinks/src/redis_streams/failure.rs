//! What Redis and the way to it may answer instead of yes, sorted by what comes next.

use std::{error::Error, io, sync::Arc};

use duly_core::{ErrorScope, SinkError, SinkErrorKind};
use redis::{ErrorKind, RedisError};

use crate::tls::is_certificate_io_fault;

/// A script may not run one of its commands: how older and newer servers say so.
const NO_RIGHT: [&str; 2] = ["user executing the script can't run", "has no permissions to run"];

/// The right that is missed is one to a key: how all servers say so.
pub(super) const OF_KEY: &str = " to access ";

/// What a failure may be about, where its words do not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// The stream, or the keys that every stream has beside it.
    Keys,
    /// One server of a cluster, or all.
    Servers,
}

/// The failure of a command that was sent, or that could not be. Of a cluster it is about the destination, unless it says
/// otherwise: each of its servers has other streams.
pub(super) fn sorted(error: &RedisError, is_cluster: bool) -> (SinkError, Option<FailureScope>) {
    let of_server = if is_cluster { ErrorScope::Destination } else { ErrorScope::Target };
    let doubt = is_cluster.then_some(FailureScope::Servers);
    let (kind, scope, doubt) = match (error.kind(), error.code()) {
        // The last way that was tried led nowhere, and it was all new: what was sent before went down with its server.
        (ErrorKind::ClusterConnectionNotFound, _) => (SinkErrorKind::Unreachable, of_server, doubt),
        _ if error.is_connection_refusal() => (SinkErrorKind::Unreachable, of_server, doubt),
        (ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig, _) => {
            (SinkErrorKind::Misconfigured, ErrorScope::Target, None)
        }
        (_, Some(code)) => by_code(code, error.detail().unwrap_or_default(), is_cluster),
        (_, None) => (SinkErrorKind::Unknown, of_server, doubt),
    };
    (SinkError::new(kind, words(error)).about(scope), doubt)
}

/// The failure to connect: nothing was sent, whatever it was.
pub(super) fn connect_failed(error: &RedisError) -> SinkError {
    let kind = match sorted(error, false).0.kind {
        SinkErrorKind::Misconfigured => SinkErrorKind::Misconfigured,
        _ if is_bad_certificate(error) => SinkErrorKind::Misconfigured,
        _ => SinkErrorKind::Unreachable,
    };
    SinkError::new(kind, words(error))
}

/// What the server says by its first word. All of these it says before it has appended anything.
fn by_code(code: &str, detail: &str, is_cluster: bool) -> (SinkErrorKind, ErrorScope, Option<FailureScope>) {
    use ErrorScope::{Destination, Target};
    use SinkErrorKind::{Denied, Misconfigured, Refused, Throttled, Unknown, Unreachable};
    let of_server = if is_cluster { Destination } else { Target };
    match code {
        "NOAUTH" | "WRONGPASS" => (Misconfigured, Target, None),
        // Of a key; otherwise of a command, which every message needs.
        "NOPERM" if detail.contains(OF_KEY) => (Denied, Destination, Some(FailureScope::Keys)),
        "NOPERM" => (Misconfigured, Target, None),
        "ERR" if NO_RIGHT.iter().any(|words| detail.contains(words)) => (Misconfigured, Target, None),
        "WRONGTYPE" => (Denied, Destination, None),
        "ERR" if detail.contains("exhausted the last possible ID") => (Denied, Destination, None),
        "ERR" if detail.contains("Elements are too large") => (Refused, Destination, None),
        "OOM" | "BUSY" => (Throttled, of_server, None),
        "LOADING" | "READONLY" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS" => (Unreachable, of_server, None),
        "CLUSTERDOWN" if detail.contains("slot") => (Unreachable, Destination, None),
        // All of its servers say so, or one that has just returned and waits for seconds before it takes anything.
        "CLUSTERDOWN" => (Unreachable, of_server, is_cluster.then_some(FailureScope::Servers)),
        "MOVED" | "ASK" | "TRYAGAIN" => (Unreachable, Destination, None),
        _ => (Unknown, Target, None),
    }
}

/// Whether another connection may fare better: this one is broken, or leads to a server that is no longer the master.
pub(super) fn is_the_wires(error: &RedisError) -> bool {
    let is_away = matches!(error.code(), Some("READONLY" | "LOADING" | "NOAUTH" | "MASTERDOWN"));
    is_away || error.is_io_error() || error.is_unrecoverable_error()
}

/// The cause lies wrapped: by the client, by the connection, and by TLS.
fn is_bad_certificate(error: &RedisError) -> bool {
    type SharedError = Arc<dyn Error + Send + Sync>;
    let cause = error.source().and_then(|cause| cause.downcast_ref::<SharedError>());
    cause.and_then(|cause| cause.downcast_ref::<io::Error>()).is_some_and(is_certificate_io_fault)
}

fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_sorted_by_how_much_they_are_about() {
        use ErrorScope::{Destination, Target};
        let of = |code: &str, detail: &str, is_cluster: bool| {
            let (kind, scope, _) = by_code(code, detail, is_cluster);
            (kind, scope)
        };
        let down = "The cluster is down";
        let in_doubt = (SinkErrorKind::Unreachable, Destination, Some(FailureScope::Servers));
        assert_eq!(by_code("CLUSTERDOWN", down, true), in_doubt);
        assert_eq!(of("CLUSTERDOWN", down, false), (SinkErrorKind::Unreachable, Target));
        let slot = "Hash slot not served";
        assert_eq!(of("CLUSTERDOWN", slot, true), (SinkErrorKind::Unreachable, Destination));
        for code in ["LOADING", "MASTERDOWN", "READONLY", "MISCONF"] {
            assert_eq!(of(code, "", false), (SinkErrorKind::Unreachable, Target));
            assert_eq!(of(code, "", true), (SinkErrorKind::Unreachable, Destination));
        }
        // As older and newer servers say it; a user or a stream may be called anything.
        let keys = [
            "this user has no permissions to access one of the keys used as arguments",
            "No permissions to access a key",
        ];
        for words in keys {
            assert_eq!(of("NOPERM", words, false), (SinkErrorKind::Denied, Destination));
        }
        let commands = [
            "this user has no permissions to run the 'evalsha' command",
            "User access-log has no permissions to run the 'evalsha' command",
        ];
        for words in commands {
            assert_eq!(of("NOPERM", words, false), (SinkErrorKind::Misconfigured, Target));
        }
        assert_eq!(of("ERR", "what nobody knows", false), (SinkErrorKind::Unknown, Target));
    }
}
