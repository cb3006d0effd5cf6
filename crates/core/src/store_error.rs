//! Why a store could not do its work.

/// Why a store could not do its work, sorted by what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    /// What to do next.
    pub kind: StoreErrorKind,
    /// What happened, to what, and what to do now.
    pub what: String,
    /// See [`is_maybe_done`](Self::is_maybe_done).
    maybe_done: bool,
}

/// Why a store could not do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// Not now; nothing happened. Try again.
    Unavailable,
    /// No answer, or no whole one: what was asked may have been done, all of it or a part. Ask again for the same ids.
    Unanswered,
    /// No room for new messages; what is there still goes out.
    Full,
    /// More pending messages than allowed.
    TooMany,
    /// As many messages of the lane are claimed as may be; some must be settled first.
    TooManyInFlight,
    /// A message that the store has no room for in its format. Nothing of its batch from there on was taken.
    TooLarge,
    /// What is stored cannot be trusted. A person must look.
    Damaged,
    /// The store is closed, or stopped after a failed sync.
    Closed,
}

impl StoreErrorKind {
    /// Whether the same call may succeed a little later, when the store is back.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Unanswered)
    }
}

impl StoreError {
    /// An error of `kind`.
    pub fn new(kind: StoreErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), maybe_done: kind == StoreErrorKind::Unanswered }
    }

    /// Whether what was asked may have been done, all of it or a part: the caller repeats it with the same ids. So it is with every
    /// [`Unanswered`](StoreErrorKind::Unanswered) error, and with a [`Damaged`](StoreErrorKind::Damaged) or
    /// [`Closed`](StoreErrorKind::Closed) one that ended a call which was under way.
    pub const fn is_maybe_done(&self) -> bool {
        self.maybe_done
    }

    /// The same error of a call that was under way when the store failed.
    #[must_use]
    pub fn when_under_way(self) -> Self {
        if self.maybe_done {
            return self;
        }
        let what = format!("{}; what was asked may have been done", self.what);
        Self { what, maybe_done: true, ..self }
    }

    /// The same error of one part of a batch, when another part was or may have been done: nobody may take it for "nothing happened".
    #[must_use]
    pub fn in_part(self) -> Self {
        use StoreErrorKind::{Full, TooLarge, TooMany, Unavailable};
        if self.maybe_done {
            return self;
        }
        let kind = match self.kind {
            Unavailable | Full | TooMany | TooLarge => StoreErrorKind::Unanswered,
            // A person must look, or the process must restart: that is not changed by what else was done.
            other => other,
        };
        let what = format!("{}; other parts of the batch may have been done", self.what);
        Self { kind, what, maybe_done: true }
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
}
