//! What can go wrong, and what to do about it.

use duly_core::{ErrorCode, Invalid, MessageId, Topic, store::StoreError};

/// Why a call of the library did not do what it was asked. [`is_maybe_done`](Self::is_maybe_done) says whether it may have been done all the
/// same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that Duly does not take. Mend it and call again.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The id is known with other content: nothing changed. Choose another id, or cancel the first message.
    #[error(
        "id {0}: a message with this id and other content is known; choose another id or cancel it [id_conflict]"
    )]
    IdConflict(MessageId),
    /// The store could not do its work; its kind says whether to try again.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store gave no answer to a send: the message may have been accepted. Send it again with this id: if it was accepted, that is a
    /// duplicate and changes nothing.
    #[error("message {id} may have been accepted; send it again with this id [store_unanswered]")]
    Unanswered {
        /// The id that the message has, given or made.
        id: MessageId,
        /// What the store said. It is the source of this error, and its words are only there.
        #[source]
        error: StoreError,
    },
    /// The queue has a handler already. Stop that one first.
    #[error("queue {0}: a handler is running already; call stop_handling first [already_handling]")]
    AlreadyHandling(Topic),
    /// Nobody handles the queue.
    #[error("queue {0}: no handler is running [not_handling]")]
    NotHandling(Topic),
    /// This Duly was shut down. Open another.
    #[error("this Duly was shut down; open another [closed]")]
    Closed,
    /// The task that delivers has ended, although nobody asked it to: a fault of Duly. Nothing accepted is lost; restart.
    #[error("delivery has stopped: {0}; restart the process, nothing accepted is lost [delivery_stopped]")]
    Stopped(String),
    /// The machine gave no thread for the alarm clock.
    #[error("cannot start the alarm clock's thread: {0}; free some threads or raise the limit [no_thread]")]
    NoThread(String),
    /// The call was made outside of a Tokio runtime, which does all of the library's work.
    #[error("there is no Tokio runtime here: call it from #[tokio::main] or Runtime::block_on [no_runtime]")]
    NoRuntime,
}

impl Error {
    /// The code by which programs know it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::IdConflict(_) => ErrorCode::IdConflict,
            Self::Store(error) => error.kind.code(),
            Self::Unanswered { .. } => ErrorCode::StoreUnanswered,
            Self::AlreadyHandling(_) => ErrorCode::AlreadyHandling,
            Self::NotHandling(_) => ErrorCode::NotHandling,
            Self::Closed => ErrorCode::Closed,
            Self::Stopped(_) => ErrorCode::DeliveryStopped,
            Self::NoThread(_) => ErrorCode::NoThread,
            Self::NoRuntime => ErrorCode::NoRuntime,
        }
    }

    /// Whether what was asked may have been done although this error came: no answer is not "no". Repeat it with the same ids.
    pub fn is_maybe_done(&self) -> bool {
        match self {
            Self::Unanswered { .. } => true,
            Self::Store(error) => error.is_maybe_done(),
            _ => false,
        }
    }
}
