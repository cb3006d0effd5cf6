//! What can go wrong, sorted by what to do next.

use redis::{ErrorKind, RedisError};
use redis_link::Link;

/// Why a call did not do what it was asked. [`is_maybe_done`](Self::is_maybe_done) says whether it may have been done all the same.
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
    /// No answer came: it may or may not have been done. Repeat it with the same [id](crate::Message::id), so that it is the same message.
    #[error("Redis did not answer, it may have been done: {0}")]
    Unanswered(String),
    /// Redis will not do it.
    #[error("Redis refused it: {0}")]
    Refused(String),
    /// This one was shut down. Connect another.
    #[error("this RedisMq was shut down; connect another")]
    Closed,
    /// The call was made outside of a Tokio runtime, which does all of the library's work.
    #[error("there is no Tokio runtime here: call it from #[tokio::main] or Runtime::block_on")]
    NoRuntime,
    /// The process of this [consumer](crate::Settings::consumer) name was replaced: another one with the same name came to the store of
    /// delayed events. Nothing was done. Give every process a name of its own, or none.
    #[cfg(feature = "delayed")]
    #[error(
        "another process with the same consumer name keeps the delayed events now, nothing was done: {0}"
    )]
    Replaced(String),
    /// The part that keeps delayed events.
    #[cfg(feature = "delayed")]
    #[error(transparent)]
    Delayed(duly::Error),
}

#[cfg(feature = "delayed")]
impl From<duly::Error> for Error {
    fn from(error: duly::Error) -> Self {
        match error {
            duly::Error::Closed => Self::Closed,
            duly::Error::NoRuntime => Self::NoRuntime,
            duly::Error::Store(error)
                if error.kind == duly::StoreErrorKind::Closed && !error.is_maybe_done() =>
            {
                Self::Replaced(error.to_string())
            }
            unanswered if unanswered.is_maybe_done() => Self::Unanswered(unanswered.to_string()),
            other => Self::Delayed(other),
        }
    }
}

impl Error {
    /// Whether what was asked may have been done although this error came: no answer is not "no".
    pub fn is_maybe_done(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }

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

    /// The same for a call over `link`, which may have repeated it by itself: of the tries before the last one nothing is known.
    pub(crate) fn over(link: &Link, error: &RedisError) -> Self {
        match Self::of(error) {
            Self::Unreachable(words) if link.may_have_repeated(error) => Self::Unanswered(words),
            other => other,
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
