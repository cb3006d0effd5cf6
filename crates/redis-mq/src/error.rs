//! What can go wrong, sorted by what to do next.

use duly_core::{Cause, MessageId};
use redis::{ErrorKind, RedisError};
use redis_link::Link;

/// Why a call did not do what it was asked. [`is_maybe_done`](Self::is_maybe_done) says whether it may have been done all the same.
///
/// Its `Display` is whole, in one line. Its `source()` is the [`Cause`], if there is one: it repeats none of the words, and gives the error below
/// ([`cause`](Self::cause)).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that cannot be meant. Mend it and call again.
    #[error("{0}")]
    Invalid(String),
    /// The value cannot be written as JSON.
    #[error("the value cannot be written as JSON: {what}")]
    #[non_exhaustive]
    Encode {
        /// What serde says.
        what: String,
        /// The error behind it.
        source: Option<Cause>,
    },
    /// Redis cannot be reached: nothing was done. Try again.
    #[error("Redis cannot be reached, nothing was done: {what}")]
    #[non_exhaustive]
    Unreachable {
        /// What the connection says.
        what: String,
        /// The error behind it.
        source: Option<Cause>,
    },
    /// No answer came: it may or may not have been done. Repeat it with the same [id](crate::Message::id), so that it is the same message.
    #[error("Redis did not answer, it may have been done: {what}")]
    #[non_exhaustive]
    Unanswered {
        /// The id of the message that was sent, given or made. `None`: no message was sent, or it has no id yet.
        id: Option<MessageId>,
        /// What the connection says.
        what: String,
        /// The error behind it.
        source: Option<Cause>,
    },
    /// Redis will not do it.
    #[error("Redis refused it: {what}")]
    #[non_exhaustive]
    Refused {
        /// What Redis says, and what to do.
        what: String,
        /// The error behind it.
        source: Option<Cause>,
    },
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
        "another process with the same consumer name keeps the delayed events now, nothing was done: {what}"
    )]
    #[non_exhaustive]
    Replaced {
        /// What the store says.
        what: String,
        /// The error behind it.
        source: Option<Cause>,
    },
    /// The part that keeps delayed events. [`StoreError`](crate::StoreError) and [`ErrorCode`](crate::ErrorCode) are its types.
    #[cfg(feature = "delayed")]
    #[error(transparent)]
    Delayed(crate::DelayedError),
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
                Self::Replaced { what: error.to_string(), source: Some(Cause::new(error)) }
            }
            duly::Error::Unanswered { id, error } => Self::from_store(error).of_message(&id),
            duly::Error::Store(error) if error.is_maybe_done() => Self::from_store(error),
            other => Self::Delayed(other),
        }
    }
}

impl Error {
    /// Whether what was asked may have been done although this error came: no answer is not "no".
    pub fn is_maybe_done(&self) -> bool {
        matches!(self, Self::Unanswered { .. })
    }

    /// The error of another library behind it, if it is of this type: `redis::RedisError` if Redis failed,
    /// `serde_json::Error` if a value cannot be written.
    pub fn cause<E: std::error::Error + 'static>(&self) -> Option<&E> {
        std::iter::successors(std::error::Error::source(self), |error| error.source()).find_map(|error| {
            error.downcast_ref::<E>().or_else(|| error.downcast_ref::<Cause>()?.downcast_ref())
        })
    }

    pub(crate) fn of(error: &RedisError) -> Self {
        let (what, source) = (error.to_string(), Some(Cause::new(error.clone())));
        if error.is_connection_refusal() || error.kind() == ErrorKind::ClusterConnectionNotFound {
            return Self::Unreachable { what, source };
        }
        match error.code() {
            Some("LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "READONLY") => Self::Unreachable { what, source },
            _ if error.is_io_error() => Self::Unanswered { id: None, what, source },
            _ => Self::Refused { what, source },
        }
    }

    /// The same for a call over `link`, which may have repeated it by itself: of the tries before the last one nothing is known.
    pub(crate) fn over(link: &Link, error: &RedisError) -> Self {
        match Self::of(error) {
            Self::Unreachable { what, source } if link.may_have_repeated(error) => {
                Self::Unanswered { id: None, what, source }
            }
            other => other,
        }
    }

    /// The failure to connect: nothing was done, whatever it was.
    pub(crate) fn unconnected(error: &RedisError) -> Self {
        match Self::of(error) {
            Self::Unanswered { what, source, .. } => Self::Unreachable { what, source },
            other => other,
        }
    }

    /// The same error of the send of a message with this id.
    pub(crate) fn of_message(self, id: &MessageId) -> Self {
        match self {
            Self::Unanswered { what, source, .. } => Self::Unanswered {
                what: format!("{what}; to repeat it, send it with the id {id}"),
                id: Some(id.clone()),
                source,
            },
            other => other,
        }
    }

    #[cfg(feature = "delayed")]
    fn from_store(error: duly::StoreError) -> Self {
        Self::Unanswered { id: None, what: error.to_string(), source: Some(Cause::new(error)) }
    }

    /// No answer came, for a reason of this process.
    pub(crate) fn unanswered(why: &str) -> Self {
        Self::Unanswered { id: None, what: why.into(), source: None }
    }

    /// There is nobody to ask, for a reason that is not the connection's.
    pub(crate) fn unreachable(why: String) -> Self {
        Self::Unreachable { what: why, source: None }
    }

    /// The refusal that `error` is, in words that say what to do.
    pub(crate) fn refused(what: String, error: RedisError) -> Self {
        Self::Refused { what, source: Some(Cause::new(error)) }
    }

    pub(crate) fn unwritable(error: serde_json::Error) -> Self {
        Self::Encode { what: error.to_string(), source: Some(Cause::new(error)) }
    }
}
