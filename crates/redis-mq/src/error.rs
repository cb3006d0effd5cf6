//! What can go wrong, sorted by what to do next.

use redis::{ErrorKind, RedisError};

/// Why a call did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that cannot be meant. Mend it and call again.
    #[error("{0}")]
    Invalid(String),
    /// The value cannot be written as JSON.
    #[error("the value cannot be written as JSON: {0}")]
    Encode(String),
    /// Redis cannot be reached: nothing was done. Try again.
    #[error("Redis cannot be reached, nothing was done: {0}")]
    Unreachable(String),
    /// The connection broke before the answer came: it may or may not have been done.
    #[error("Redis did not answer, it may have been done: {0}")]
    Unanswered(String),
    /// Redis will not do it.
    #[error("Redis refused it: {0}")]
    Refused(String),
    /// This one was shut down. Connect another.
    #[error("this RedisMq was shut down; connect another")]
    Closed,
    /// The part that keeps delayed events.
    #[cfg(feature = "delayed")]
    #[error(transparent)]
    Delayed(#[from] duly::Error),
}

impl Error {
    pub(crate) fn of(error: &RedisError) -> Self {
        let words = error.to_string();
        if error.is_connection_refusal() || error.kind() == ErrorKind::ClusterConnectionNotFound {
            return Self::Unreachable(words);
        }
        match error.code() {
            Some("LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "READONLY") => Self::Unreachable(words),
            _ if error.is_io_error() => Self::Unanswered(words),
            _ => Self::Refused(words),
        }
    }

    /// The failure to connect: nothing was done, whatever it was.
    pub(crate) fn unconnected(error: &RedisError) -> Self {
        match Self::of(error) {
            Self::Unanswered(words) => Self::Unreachable(words),
            other => other,
        }
    }
}
