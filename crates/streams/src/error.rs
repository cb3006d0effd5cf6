//! Errors, by what to do next.

use duly_core::{Cause, MessageId};
use redis::{ErrorKind, RedisError};
use redis_link::Link;

/// Why a call failed. [`is_maybe_done`](Self::is_maybe_done) says whether it may have been done all the same.
///
/// `Display` is complete, in one line. `source()` is the [`Cause`], if there is one; it repeats no text, and
/// [`cause`](Self::cause) gives the error behind it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid value. Correct it and call again.
    #[error("{0}")]
    Invalid(String),
    /// The value cannot be written as JSON.
    #[error("the value cannot be written as JSON: {what}")]
    #[non_exhaustive]
    Encode {
        /// The message of serde.
        what: String,
        /// The cause.
        source: Option<Cause>,
    },
    /// Redis cannot be reached: nothing was done. Try again.
    #[error("Redis cannot be reached, nothing was done: {what}")]
    #[non_exhaustive]
    Unreachable {
        /// The message of the connection.
        what: String,
        /// The cause.
        source: Option<Cause>,
    },
    /// No reply came: it may have been done or not. Repeat it with the same [id](crate::Message::id). A delayed message
    /// is then the same one; of a message sent now there may be two entries, both with that id.
    #[error("Redis did not answer, it may have been done: {what}")]
    #[non_exhaustive]
    Unanswered {
        /// The id of the message. `None`: the call was not a send.
        id: Option<MessageId>,
        /// The message of the connection.
        what: String,
        /// The cause.
        source: Option<Cause>,
    },
    /// Redis refused the command.
    #[error("Redis refused it: {what}")]
    #[non_exhaustive]
    Refused {
        /// The message of Redis, and what to do.
        what: String,
        /// The cause.
        source: Option<Cause>,
    },
    /// This `Streams` was shut down. Connect another.
    #[error("this Streams was shut down; connect another")]
    Closed,
    /// The call was made outside of a Tokio runtime.
    #[error("there is no Tokio runtime here: call it from #[tokio::main] or Runtime::block_on")]
    NoRuntime,
    /// Another process with the same [consumer](crate::Settings::consumer) name joined the store of delayed events.
    /// Nothing was done. Give every process a name of its own, or none.
    #[cfg(feature = "delayed")]
    #[error(
        "another process with the same consumer name keeps the delayed events now, nothing was done: {what}"
    )]
    #[non_exhaustive]
    Replaced {
        /// The message of the store.
        what: String,
        /// The cause.
        source: Option<Cause>,
    },
    /// An error of the delayed store. Its types are [`StoreError`](crate::StoreError) and
    /// [`ErrorCode`](crate::ErrorCode).
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
            duly::Error::Unanswered { id, error } => Self::from_store(error).with_message_id(&id),
            duly::Error::Store(error) if error.is_maybe_done() => Self::from_store(error),
            other => Self::Delayed(other),
        }
    }
}

impl Error {
    /// Whether the call may have been done although it failed: a missing reply is not a refusal.
    pub fn is_maybe_done(&self) -> bool {
        matches!(self, Self::Unanswered { .. })
    }

    /// The cause, if it is of this type: `redis::RedisError` if Redis failed, `serde_json::Error` if a value was not
    /// encoded.
    pub fn cause<E: std::error::Error + 'static>(&self) -> Option<&E> {
        std::iter::successors(std::error::Error::source(self), |error| error.source()).find_map(|error| {
            error.downcast_ref::<E>().or_else(|| error.downcast_ref::<Cause>()?.downcast_ref())
        })
    }

    pub(crate) fn from_redis(error: &RedisError) -> Self {
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

    /// The same for a call over `link`, which may have repeated it: the result of the earlier tries is unknown.
    pub(crate) fn from_link(link: &Link, error: &RedisError) -> Self {
        match Self::from_redis(error) {
            Self::Unreachable { what, source } if link.may_have_repeated(error) => {
                Self::Unanswered { id: None, what, source }
            }
            other => other,
        }
    }

    /// A failed connect: nothing was done, whatever the error.
    pub(crate) fn on_connect(error: &RedisError) -> Self {
        match Self::from_redis(error) {
            Self::Unanswered { what, source, .. } => Self::Unreachable { what, source },
            other => other,
        }
    }

    /// Adds the id of the message whose send failed.
    pub(crate) fn with_message_id(self, id: &MessageId) -> Self {
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

    /// No reply came, for a reason in this process.
    pub(crate) fn unanswered(why: &str) -> Self {
        Self::Unanswered { id: None, what: why.into(), source: None }
    }

    /// Redis is unreachable for a reason other than the connection.
    pub(crate) fn unreachable(why: String) -> Self {
        Self::Unreachable { what: why, source: None }
    }

    /// A refusal, with text that says what to do.
    pub(crate) fn refused(what: String, error: RedisError) -> Self {
        Self::Refused { what, source: Some(Cause::new(error)) }
    }

    pub(crate) fn encode(error: serde_json::Error) -> Self {
        Self::Encode { what: error.to_string(), source: Some(Cause::new(error)) }
    }
}
