//! What becomes of a copy at the target, by what the source says of its own. Pure: every row of the table is a test.

use duly::{Record, State, Timestamp};
use duly_core::store::Changed;

/// What becomes of a copy that is parked at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The source will never deliver it: the target does, when it is due.
    Live(Timestamp),
    /// It is withdrawn.
    Drop(Why),
    /// It waits at the source, too: the next look there goes on with it.
    Stay,
    /// The source does not know it any more: the move may have cancelled it, or it ended there and was forgotten.
    Forgotten,
}

/// Why a copy is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The source is delivering it, has delivered it, or gave it up.
    AtSource,
    /// Somebody cancelled it at the source.
    Cancelled,
}

/// After the source was asked, at `asked`, to cancel what was due at `due` when it was read. `record` is what the source knows of
/// it since.
pub(super) fn after_cancel(
    answer: Changed,
    record: Option<&Record>,
    asked: Timestamp,
    due: Timestamp,
) -> Fate {
    let cancelled = record.filter(|record| record.state == State::Cancelled);
    match answer {
        // Whoever moved it to another time after it was read was answered that it is done.
        Changed::Done { .. } => Fate::Live(cancelled.map_or(due, |record| record.message.due)),
        // The answer of a first try of ours may have got lost on the way within the store.
        Changed::TooLate(State::Cancelled) => match cancelled {
            Some(record) if record.ended != Some(asked) => Fate::Drop(Why::Cancelled),
            Some(record) => Fate::Live(record.message.due),
            None => Fate::Live(due),
        },
        Changed::TooLate(State::Pending) => Fate::Stay,
        Changed::TooLate(State::InFlight | State::Delivered | State::Dead) => Fate::Drop(Why::AtSource),
        Changed::Unknown => Fate::Forgotten,
    }
}

/// Of a copy that was found parked, left by a run that was cut short. `asked` is when that run last asked the source to cancel
/// something, if that is known.
pub(super) fn of_parked(record: Option<&Record>, asked: Option<Timestamp>) -> Fate {
    let Some(record) = record else { return Fate::Forgotten };
    match record.state {
        State::Pending => Fate::Stay,
        State::InFlight | State::Delivered | State::Dead => Fate::Drop(Why::AtSource),
        // Cancelled at another instant, it was not the move. Where no instant is known, a message too many is better than one
        // too few.
        State::Cancelled if asked.is_some_and(|asked| record.ended != Some(asked)) => {
            Fate::Drop(Why::Cancelled)
        }
        State::Cancelled => Fate::Live(record.message.due),
    }
}

#[cfg(test)]
mod tests {
    use duly::{MessageId, SinkName, Topic};
    use duly_core::Message;

    use super::*;

    const READ: Timestamp = Timestamp::from_millis(1_000);
    const MOVED: Timestamp = Timestamp::from_millis(2_000);
    const ASKED: Timestamp = Timestamp::from_millis(500);
    const ELSEWHEN: Timestamp = Timestamp::from_millis(501);
    const DONE: Changed = Changed::Done { maybe_delivered: false };

    fn record(state: State, due: Timestamp, ended: Option<Timestamp>) -> Record {
        let (id, topic) = (MessageId::parse("a").unwrap(), Topic::parse("order").unwrap());
        let record = Record::accepted(Message::new(id, SinkName::queue(), topic, due), None);
        Record { state, ended, ..record }
    }

    #[test]
    fn what_the_source_let_go_of_is_delivered_by_the_target_at_the_time_that_was_last_asked_for() {
        let cancelled = |due| record(State::Cancelled, due, Some(ASKED));
        for (answer, known, fate) in [
            (DONE, Some(cancelled(READ)), Fate::Live(READ)),
            (DONE, Some(cancelled(MOVED)), Fate::Live(MOVED)),
            (Changed::Done { maybe_delivered: true }, Some(cancelled(READ)), Fate::Live(READ)),
            // Forgotten at once, or sent again under the same id.
            (DONE, None, Fate::Live(READ)),
            (DONE, Some(record(State::Pending, MOVED, None)), Fate::Live(READ)),
            // Asked twice, because the first answer got lost.
            (Changed::TooLate(State::Cancelled), Some(cancelled(MOVED)), Fate::Live(MOVED)),
            (Changed::TooLate(State::Cancelled), None, Fate::Live(READ)),
        ] {
            assert_eq!(after_cancel(answer, known.as_ref(), ASKED, READ), fate, "{answer:?} {known:?}");
        }
    }

    #[test]
    fn what_the_source_keeps_is_withdrawn_at_the_target() {
        for state in [State::InFlight, State::Delivered, State::Dead] {
            let known = record(state, READ, None);
            let fate = after_cancel(Changed::TooLate(state), Some(&known), ASKED, READ);
            assert_eq!(fate, Fate::Drop(Why::AtSource), "{state:?}");
            assert_eq!(of_parked(Some(&known), Some(ASKED)), Fate::Drop(Why::AtSource), "{state:?}");
            assert_eq!(of_parked(Some(&known), None), Fate::Drop(Why::AtSource), "{state:?}");
        }
    }

    #[test]
    fn what_somebody_else_cancelled_stays_cancelled() {
        let known = record(State::Cancelled, READ, Some(ELSEWHEN));
        let fate = after_cancel(Changed::TooLate(State::Cancelled), Some(&known), ASKED, READ);
        assert_eq!(fate, Fate::Drop(Why::Cancelled));
        assert_eq!(of_parked(Some(&known), Some(ASKED)), Fate::Drop(Why::Cancelled));
    }

    #[test]
    fn what_the_move_cancelled_before_it_was_cut_short_is_delivered_by_the_target() {
        let known = record(State::Cancelled, MOVED, Some(ASKED));
        assert_eq!(of_parked(Some(&known), Some(ASKED)), Fate::Live(MOVED));
        assert_eq!(of_parked(Some(&known), None), Fate::Live(MOVED), "better one too many than one too few");
    }

    #[test]
    fn what_waits_at_the_source_is_left_to_the_next_look() {
        let known = record(State::Pending, READ, None);
        assert_eq!(of_parked(Some(&known), Some(ASKED)), Fate::Stay);
        assert_eq!(after_cancel(Changed::TooLate(State::Pending), Some(&known), ASKED, READ), Fate::Stay);
    }

    #[test]
    fn what_the_source_has_forgotten_is_not_decided_here() {
        assert_eq!(of_parked(None, Some(ASKED)), Fate::Forgotten);
        assert_eq!(of_parked(None, None), Fate::Forgotten);
        assert_eq!(after_cancel(Changed::Unknown, None, ASKED, READ), Fate::Forgotten);
    }
}
