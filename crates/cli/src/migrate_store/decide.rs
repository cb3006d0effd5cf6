//! Decides about a copy at the target by the state of the message at the source. Pure: every row of the table is a test,
//! and `crates/migration-model` checks the protocol around it.

use duly_core::{Record, State, Timestamp, store::Changed};

use super::instants::Instants;

/// The decision about a copy that is parked at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyOutcome {
    /// The source will never deliver it: the target does, when it is due.
    Live(Timestamp),
    /// It is withdrawn.
    Drop(WithdrawReason),
    /// It is a dead letter at the source. Somebody may replay it there, and a call of ours that comes late may then cancel it: it is
    /// withdrawn once no call can come late.
    Dead,
    /// It waits at the source, too, or may again: a later look goes on with it.
    Stay,
    /// The source does not know it any more: the move may have cancelled it, or it ended there and was forgotten.
    Forgotten,
}

impl CopyOutcome {
    /// Decides about the copy now. `may_come_late` is read before the source is, because a late call may arrive in between.
    pub(super) fn by_now(self, may_come_late: bool) -> Self {
        match self {
            Self::Dead if may_come_late => Self::Stay,
            Self::Dead => Self::Drop(WithdrawReason::AtSource),
            outcome => outcome,
        }
    }
}

/// Why a copy is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithdrawReason {
    /// The source has delivered it, or gave it up and nothing of ours can come late.
    AtSource,
    /// Somebody cancelled it at the source.
    Cancelled,
}

/// After the source was asked to cancel what was due at `due` when it was read. `ours` are the instants at which the move cancels,
/// the one of this call and of all whose answers were never heard; `record` is what the source knows of it since.
pub(super) fn after_cancel(
    answer: Changed,
    record: Option<&Record>,
    ours: &Instants,
    due: Timestamp,
) -> CopyOutcome {
    let cancelled = record.filter(|record| record.state == State::Cancelled);
    match answer {
        // A reschedule after the read was acknowledged, so it counts.
        Changed::Done { .. } => CopyOutcome::Live(cancelled.map_or(due, |record| record.message.due)),
        // A call of ours whose answer got lost may have been done since, however long ago it was sent.
        // If the source forgot it meanwhile, nobody knows whose cancel it was.
        Changed::TooLate(State::Cancelled) => of_parked(record, ours),
        Changed::TooLate(State::Delivered) => CopyOutcome::Drop(WithdrawReason::AtSource),
        Changed::TooLate(State::Dead) => CopyOutcome::Dead,
        Changed::Unknown => CopyOutcome::Forgotten,
        // Pending or in flight. It may come back to wait there, and then be cancelled by a call of ours that comes late: its copy is
        // all there would be.
        _ => CopyOutcome::Stay,
    }
}

/// Of a copy that is parked at the target, by what the source knows of its message.
pub(super) fn of_parked(record: Option<&Record>, ours: &Instants) -> CopyOutcome {
    let Some(record) = record else { return CopyOutcome::Forgotten };
    match record.state {
        State::Delivered => CopyOutcome::Drop(WithdrawReason::AtSource),
        State::Dead => CopyOutcome::Dead,
        State::Cancelled if ours.may_be(record.ended) => CopyOutcome::Live(record.message.due),
        State::Cancelled => CopyOutcome::Drop(WithdrawReason::Cancelled),
        // Pending or in flight.
        _ => CopyOutcome::Stay,
    }
}

/// Whether what was cancelled at the source is not what the copy was made of, which was `accepted` then: somebody cancelled that and
/// sent something else, or the same, with the same id. The store drops the body of what is cancelled, so it is gone.
pub(super) fn is_another(record: &Record, accepted: Option<Timestamp>) -> bool {
    record.state == State::Cancelled && are_known_to_differ(record.accepted, accepted)
}

/// Whether two times of acceptance are known and not the same.
pub(super) fn are_known_to_differ(one: Option<Timestamp>, other: Option<Timestamp>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// The decision about the copy of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadOutcome {
    /// The source does not have it any more: the copy is the dead letter.
    Moved,
    /// The source still has it, or had it replayed: the copy is purged.
    Withdraw,
}

/// After the source was asked to purge a dead letter.
pub(super) fn after_purge(answer: Changed) -> DeadOutcome {
    match answer {
        Changed::TooLate(_) => DeadOutcome::Withdraw,
        // Done, or unknown. Nobody knows who purged what is unknown: a store may have asked twice, the first answer being lost. A dead
        // letter too many is better than one too few.
        _ => DeadOutcome::Moved,
    }
}

/// Of the copy of a dead letter whose batch was cut short, by what the source knows of it, once no call can come late.
pub(super) fn of_dead_copy(record: Option<&Record>) -> DeadOutcome {
    if record.is_none() { DeadOutcome::Moved } else { DeadOutcome::Withdraw }
}

#[cfg(test)]
mod tests {
    use duly_core::{MessageId, SinkName, StoredMessage, Topic};

    use super::*;

    const READ: Timestamp = Timestamp::from_millis(1_000);
    const MOVED: Timestamp = Timestamp::from_millis(2_000);
    const ASKED: Timestamp = Timestamp::from_millis(500);
    const EARLIER: Timestamp = Timestamp::from_millis(400);
    const ELSEWHEN: Timestamp = Timestamp::from_millis(501);
    const DONE: Changed = Changed::Done { maybe_delivered: false };

    fn ours() -> Instants {
        let mut ours = Instants::default();
        [ASKED, EARLIER].into_iter().for_each(|at| ours.add(at));
        ours
    }

    fn record(state: State, due: Timestamp, ended: Option<Timestamp>) -> Record {
        let (id, topic) = (MessageId::parse("a").unwrap(), Topic::parse("order").unwrap());
        let mut record = Record::accepted(StoredMessage::new(id, SinkName::queue(), topic, due), None);
        (record.state, record.ended) = (state, ended);
        record
    }

    #[test]
    fn what_the_source_let_go_of_is_delivered_by_the_target_at_the_time_that_was_last_asked_for() {
        let cancelled = |due| record(State::Cancelled, due, Some(ASKED));
        for (answer, known, outcome) in [
            (DONE, Some(cancelled(READ)), CopyOutcome::Live(READ)),
            (DONE, Some(cancelled(MOVED)), CopyOutcome::Live(MOVED)),
            (Changed::Done { maybe_delivered: true }, Some(cancelled(READ)), CopyOutcome::Live(READ)),
            // Forgotten at once, or sent again under the same id.
            (DONE, None, CopyOutcome::Live(READ)),
            (DONE, Some(record(State::Pending, MOVED, None)), CopyOutcome::Live(READ)),
            // The call was repeated because its first answer was lost.
            (Changed::TooLate(State::Cancelled), Some(cancelled(MOVED)), CopyOutcome::Live(MOVED)),
            // A call that was given up came late, after one with another instant was sent.
            (
                Changed::TooLate(State::Cancelled),
                Some(record(State::Cancelled, MOVED, Some(EARLIER))),
                CopyOutcome::Live(MOVED),
            ),
            // Somebody cancelled it and sent it again.
            (
                Changed::TooLate(State::Cancelled),
                Some(record(State::Pending, MOVED, None)),
                CopyOutcome::Stay,
            ),
        ] {
            assert_eq!(after_cancel(answer, known.as_ref(), &ours(), READ), outcome, "{answer:?} {known:?}");
        }
    }

    #[test]
    fn what_the_source_keeps_is_withdrawn_at_the_target() {
        for (state, expected) in [
            (State::Delivered, CopyOutcome::Drop(WithdrawReason::AtSource)),
            (State::Dead, CopyOutcome::Dead),
        ] {
            let known = record(state, READ, None);
            let outcome = after_cancel(Changed::TooLate(state), Some(&known), &ours(), READ);
            assert_eq!(outcome, expected, "{state:?}");
            assert_eq!(of_parked(Some(&known), &ours()), expected, "{state:?}");
            assert_eq!(of_parked(Some(&known), &Instants::unknown()), expected, "{state:?}");
        }
    }

    #[test]
    fn what_somebody_else_cancelled_stays_cancelled() {
        let known = record(State::Cancelled, READ, Some(ELSEWHEN));
        let outcome = after_cancel(Changed::TooLate(State::Cancelled), Some(&known), &ours(), READ);
        assert_eq!(outcome, CopyOutcome::Drop(WithdrawReason::Cancelled));
        assert_eq!(of_parked(Some(&known), &ours()), CopyOutcome::Drop(WithdrawReason::Cancelled));
    }

    #[test]
    fn what_the_move_cancelled_before_it_was_cut_short_is_delivered_by_the_target() {
        let known = record(State::Cancelled, MOVED, Some(ASKED));
        assert_eq!(of_parked(Some(&known), &ours()), CopyOutcome::Live(MOVED));
        assert_eq!(
            of_parked(Some(&known), &Instants::unknown()),
            CopyOutcome::Live(MOVED),
            "better one too many than one too few"
        );
    }

    #[test]
    fn what_waits_at_the_source_or_may_again_keeps_its_copy() {
        for state in [State::Pending, State::InFlight] {
            let known = record(state, READ, None);
            assert_eq!(of_parked(Some(&known), &ours()), CopyOutcome::Stay, "{state:?}");
            let outcome = after_cancel(Changed::TooLate(state), Some(&known), &ours(), READ);
            assert_eq!(outcome, CopyOutcome::Stay, "{state:?}");
        }
    }

    #[test]
    fn what_the_source_has_forgotten_is_not_decided_here() {
        assert_eq!(of_parked(None, &ours()), CopyOutcome::Forgotten);
        assert_eq!(of_parked(None, &Instants::unknown()), CopyOutcome::Forgotten);
        assert_eq!(after_cancel(Changed::Unknown, None, &ours(), READ), CopyOutcome::Forgotten);
    }

    #[test]
    fn a_dead_letter_is_at_one_of_the_two() {
        assert_eq!(after_purge(DONE), DeadOutcome::Moved);
        assert_eq!(after_purge(Changed::Unknown), DeadOutcome::Moved, "better one too many than one too few");
        assert_eq!(of_dead_copy(None), DeadOutcome::Moved);
        for state in [State::Pending, State::InFlight, State::Delivered, State::Dead, State::Cancelled] {
            assert_eq!(after_purge(Changed::TooLate(state)), DeadOutcome::Withdraw, "{state:?}");
            assert_eq!(of_dead_copy(Some(&record(state, READ, None))), DeadOutcome::Withdraw, "{state:?}");
        }
    }

    #[test]
    fn what_was_sent_again_is_known_by_when_it_was_accepted() {
        let cancelled = |accepted| {
            let mut record = record(State::Cancelled, READ, Some(ASKED));
            record.accepted = accepted;
            record
        };
        assert!(is_another(&cancelled(Some(MOVED)), Some(READ)));
        assert!(!is_another(&cancelled(Some(READ)), Some(READ)));
        for (one, other) in [(None, Some(READ)), (Some(READ), None), (None, None)] {
            assert!(!is_another(&cancelled(one), other), "not known");
        }
        let mut pending = record(State::Pending, READ, None);
        pending.accepted = Some(MOVED);
        assert!(!is_another(&pending, Some(READ)), "it still waits");
    }
}
