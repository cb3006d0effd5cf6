//! Errors of the library.

use duly_core::{ErrorCode, Invalid, MessageId, Topic, store::StoreError};

/// Why a call failed. [`is_maybe_done`](Self::is_maybe_done) says whether it may have been done all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid value. Correct it and call again.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The id is known with other content: nothing changed. Choose another id, or cancel the first message.
    #[error(
        "id {0}: a message with this id and other content is known; choose another id or cancel it [id_conflict]"
    )]
    IdConflict(MessageId),
    /// The store failed; the kind of error says whether to try again.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not answer a send: the message may have been accepted. Send it again with this id: if it was
    /// accepted, that is a duplicate and changes nothing.
    #[error("message {id} may have been accepted; send it again with this id [store_unanswered]")]
    Unanswered {
        /// The id of the message, given or generated.
        id: MessageId,
        /// The error of the store, which is the source of this error.
        #[source]
        error: StoreError,
    },
    /// The queue has a handler already. Stop that one first.
    #[error("queue {0}: a handler is running already; call stop_handling first [handler_exists]")]
    HandlerExists(Topic),
    /// Nobody handles the queue.
    #[error("queue {0}: no handler is running [no_handler]")]
    NoHandler(Topic),
    /// This Duly was shut down. Open another.
    #[error("this Duly was shut down; open another [closed]")]
    Closed,
    /// The delivery task has ended unexpectedly: a bug of Duly. Nothing accepted is lost; restart the process.
    #[error("delivery has stopped: {0}; restart the process, nothing accepted is lost [delivery_stopped]")]
    Stopped(String),
    /// The alarm thread of the clock could not be started.
    #[error("cannot start the alarm clock's thread: {0}; free some threads or raise the limit [no_thread]")]
    NoThread(String),
    /// The call was made outside of a Tokio runtime.
    #[error("there is no Tokio runtime here: call it from #[tokio::main] or Runtime::block_on [no_runtime]")]
    NoRuntime,
}

impl Error {
    /// Its stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::IdConflict(_) => ErrorCode::IdConflict,
            Self::Store(error) => error.kind.code(),
            Self::Unanswered { .. } => ErrorCode::StoreUnanswered,
            Self::HandlerExists(_) => ErrorCode::HandlerExists,
            Self::NoHandler(_) => ErrorCode::NoHandler,
            Self::Closed => ErrorCode::Closed,
            Self::Stopped(_) => ErrorCode::DeliveryStopped,
            Self::NoThread(_) => ErrorCode::NoThread,
            Self::NoRuntime => ErrorCode::NoRuntime,
        }
    }

    /// Whether the call may have been done although it failed: a missing answer is not a refusal. Repeat it with the
    /// same ids.
    pub fn is_maybe_done(&self) -> bool {
        match self {
            Self::Unanswered { .. } => true,
            Self::Store(error) => error.is_maybe_done(),
            _ => false,
        }
    }
}
