//! Verdicts of handlers.

use std::time::Duration;

/// What a handler returns for a message of `duly`, or for an entry, a timer or an expired key of `duly-streams`. A handler
/// may also return `()` (done) or a `Result`, whose error is a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The message was handled.
    Done,
    /// Call the handler again later. This counts as an attempt, and after the last one the message is a dead letter.
    Retry {
        /// The wait; by default that of the retry policy.
        after: Option<Duration>,
        /// The reason, kept with the attempt.
        reason: Option<String>,
    },
    /// The message can never be handled: it becomes a dead letter now, with this reason. An expired key is only logged,
    /// because Redis no longer has it.
    GiveUp(String),
}

impl Verdict {
    /// Deliver the message again when its retry policy says so.
    #[must_use]
    pub const fn retry() -> Self {
        Self::Retry { after: None, reason: None }
    }

    /// Deliver the message again after this long, whatever its retry policy says.
    #[must_use]
    pub const fn retry_after(after: Duration) -> Self {
        Self::Retry { after: Some(after), reason: None }
    }

    /// Make the message a dead letter now, with this reason.
    #[must_use]
    pub fn give_up(reason: impl Into<String>) -> Self {
        Self::GiveUp(reason.into())
    }

    /// Adds the reason of a retry, or replaces the reason of a dead letter.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        match self {
            Self::Retry { after, .. } => Self::Retry { after, reason: Some(why.into()) },
            Self::GiveUp(_) => Self::GiveUp(why.into()),
            Self::Done => Self::Done,
        }
    }
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_added_to_what_can_carry_one() {
        let wait = Duration::from_secs(3);
        assert_eq!(
            Verdict::retry_after(wait).because("busy"),
            Verdict::Retry { after: Some(wait), reason: Some("busy".into()) }
        );
        assert_eq!(Verdict::give_up("old").because("new"), Verdict::GiveUp("new".into()));
        assert_eq!(Verdict::Done.because("nothing"), Verdict::Done);
    }
}
