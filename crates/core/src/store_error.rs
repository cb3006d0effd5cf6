//! Why a store could not do its work.

use crate::{Cause, ErrorCode};

/// Why a store could not do its work, sorted by what the caller does next.
///
/// Its `Display` is one line with all that a person needs, the words of the cause included, because logs and HTTP answers show nothing else. Its
/// `source()` is the [`Cause`], which repeats none of these words and gives the error below to programs. Two errors are equal if they say the
/// same, whatever the cause.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
#[non_exhaustive]
pub struct StoreError {
    /// What to do next.
    pub kind: StoreErrorKind,
    /// What happened, to what, and what to do now.
    pub what: String,
    /// See [`is_maybe_done`](Self::is_maybe_done).
    maybe_done: bool,
    source: Option<Cause>,
}

impl PartialEq for StoreError {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.what, self.maybe_done) == (other.kind, &other.what, other.maybe_done)
    }
}

impl Eq for StoreError {}

/// Why a store could not do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Not now; nothing happened. Try again.
    Unavailable,
    /// No complete answer: the call may have taken effect, in whole or in part. Repeat it with the same ids.
    Unanswered,
    /// No room for new messages; those in the store are still delivered.
    Full,
    /// More pending messages than allowed.
    TooMany,
    /// The lane has reached its limit of claimed messages; some must be settled first.
    TooManyInFlight,
    /// A message is too large for the store's format. It and the rest of its batch were not inserted.
    TooLarge,
    /// The stored data is damaged. A person must look at it.
    Damaged,
    /// The store is closed, or stopped after a failed sync.
    Closed,
}

impl StoreErrorKind {
    /// The code by which programs know it.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Unavailable => ErrorCode::StoreUnavailable,
            Self::Unanswered => ErrorCode::StoreUnanswered,
            Self::Full => ErrorCode::DiskFull,
            Self::TooMany => ErrorCode::TooManyPending,
            Self::TooManyInFlight => ErrorCode::TooManyInFlight,
            Self::TooLarge => ErrorCode::BodyTooLarge,
            Self::Damaged => ErrorCode::StoreDamaged,
            Self::Closed => ErrorCode::StoreClosed,
        }
    }

    /// Whether the same call may succeed a little later, when the store is back.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Unanswered)
    }
}

impl StoreError {
    /// An error of `kind`.
    pub fn new(kind: StoreErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), maybe_done: kind == StoreErrorKind::Unanswered, source: None }
    }

    /// Adds the cause: the error of a disk, client or driver, whose text `what` contains.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Cause::new(source)), ..self }
    }

    /// The cause, if it is of this type.
    pub fn cause<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.source.as_ref().and_then(Cause::downcast_ref)
    }

    /// Changes the text.
    #[must_use]
    pub fn in_words(self, words: impl FnOnce(&str) -> String) -> Self {
        Self { what: words(&self.what), ..self }
    }

    /// Changes the kind.
    #[must_use]
    pub fn of_kind(self, kind: StoreErrorKind) -> Self {
        let maybe_done = self.maybe_done || kind == StoreErrorKind::Unanswered;
        Self { kind, maybe_done, ..self }
    }

    /// Whether the call may have been done, completely or in part: repeat it with the same ids. True for every
    /// [`Unanswered`](StoreErrorKind::Unanswered) error, and for a [`Damaged`](StoreErrorKind::Damaged) or
    /// [`Closed`](StoreErrorKind::Closed) one that ended a running call.
    pub const fn is_maybe_done(&self) -> bool {
        self.maybe_done
    }

    /// Marks the error of a call that was running when the store failed.
    #[must_use]
    pub fn when_under_way(self) -> Self {
        if self.maybe_done {
            return self;
        }
        let what = format!("{}; what was asked may have been done", self.what);
        Self { what, maybe_done: true, ..self }
    }

    /// Marks the error of one part of a batch when another part was or may have been done.
    #[must_use]
    pub fn in_part(self) -> Self {
        use StoreErrorKind::{Full, TooLarge, TooMany, Unavailable};
        if self.maybe_done {
            return self;
        }
        let kind = match self.kind {
            Unavailable | Full | TooMany | TooLarge => StoreErrorKind::Unanswered,
            // These need an operator or a restart, whatever else was done.
            other => other,
        };
        let what = format!("{}; other parts of the batch may have been done", self.what);
        Self { kind, what, maybe_done: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_one_part_never_says_that_nothing_was_done() {
        use StoreErrorKind::*;
        for (kind, then) in
            [(Unavailable, Unanswered), (Full, Unanswered), (Damaged, Damaged), (Closed, Closed)]
        {
            let error = StoreError::new(kind, "it failed");
            assert!(!error.is_maybe_done(), "{kind:?}");
            let part = error.clone().in_part();
            assert!(part.kind == then && part.is_maybe_done() && part.what.contains("may have been done"));
            assert_eq!(part.clone().in_part(), part, "said once");
            let under_way = error.when_under_way();
            assert!(under_way.kind == kind && under_way.is_maybe_done());
        }
        assert!(StoreError::new(Unanswered, "no answer").is_maybe_done());
    }

    #[test]
    fn a_chain_says_each_thing_once_and_keeps_the_cause() {
        let io = || std::io::Error::other("the disk hangs");
        let plain = StoreError::new(StoreErrorKind::Unavailable, format!("reading failed: {}", io()));
        let error = plain.clone().with_source(io());
        assert_eq!(error, plain, "the cause says nothing new");
        let unanswered = error.clone().of_kind(StoreErrorKind::Unanswered);
        assert!(unanswered.is_maybe_done() && unanswered.kind == StoreErrorKind::Unanswered);
        let changed = [
            error.clone(),
            error.clone().when_under_way(),
            error.clone().in_part(),
            error.clone().in_words(|what| format!("shard 3: {what}")),
            unanswered,
        ];
        for error in changed {
            let texts: Vec<_> = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source())
                .map(ToString::to_string)
                .collect();
            assert_eq!(texts.len(), 2, "{texts:?}");
            assert_eq!(texts.concat().matches("the disk hangs").count(), 1, "{texts:?}");
            assert!(error.cause::<std::io::Error>().is_some() && error.cause::<std::fmt::Error>().is_none());
        }
    }
}
