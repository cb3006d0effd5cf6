//! The protocol of a move as a model: every order of its calls, of what others do, and of calls that are lost, done late, or cut off
//! by a crash. What becomes of a copy is decided by the code itself.

use std::collections::BTreeSet;

use duly_core::{State, Timestamp, store::Changed};

use crate::{
    decide::{
        CopyOutcome, DeadOutcome, WithdrawReason, after_cancel, after_purge, is_another, of_dead_copy,
        of_parked,
    },
    instants::Instants,
    world::{Both, DUE, MigrationCall, Source, Target, World, accepted},
};

/// What is checked, and which rule is left out to see that the model would notice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    pub(crate) messages: usize,
    /// Answers that get lost, whatever became of the calls.
    pub(crate) faults: u8,
    pub(crate) crashes: u8,
    pub(crate) others: Others,
    pub(crate) broken: Option<Broken>,
}

/// What others do beside claims, deliveries and cancels.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Others {
    /// Messages die at the source, and are replayed there once.
    pub(crate) die: bool,
    /// The source forgets what was delivered or cancelled.
    pub(crate) forget: bool,
    /// What was cancelled by somebody is sent again with other content.
    pub(crate) send_again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Only the instant of the latest cancel counts as the move's own.
    OneInstant,
    /// The copy of what is under way at the source is withdrawn.
    DropsInFlight,
    /// No marker names dead letters before they are copied.
    MarksNoDead,
    /// Dead letters of a batch that was cut short are decided although a call may come late.
    IgnoresLatePurges,
    /// What was cancelled by the move is brought to life, whatever the copy was made of.
    TakesAnother,
    /// A copy that was made before the last try is withdrawn although a call may come late.
    WithdrawsWhileLate,
    /// Whether a call may come late is asked after the source is.
    AsksLater,
    /// A copy is parked in the place of one that was withdrawn, although a call may come late.
    ParksWhileLate,
    /// A message is cancelled for a copy that was parked before, although a call may come late.
    CancelsWhileLate,
    /// A dead letter of which the target has a parked copy is copied, although no marker names it.
    CopiesWhereParked,
}

/// Where the process is. Reads are part of the step that follows them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Tool {
    Off,
    /// Batches of dead letters that were cut short.
    FinishDead {
        last: bool,
    },
    WithdrawDead {
        ids: Vec<usize>,
        last: bool,
    },
    UnmarkDead {
        ids: Vec<usize>,
        last: bool,
    },
    Finish {
        last: bool,
    },
    Read,
    /// And whether a call could come late when they were read.
    Park(Vec<MessageRef>, bool),
    Outdate {
        ids: Vec<usize>,
        then: Vec<MessageRef>,
        late: bool,
    },
    Cancel(Vec<MessageRef>, bool),
    Decide(Vec<(MessageRef, Changed)>, bool),
    Apply {
        live: Vec<usize>,
        drop: Vec<usize>,
        retire: Option<u8>,
        then: Next,
    },
    ReadDead,
    MarkDead(Vec<MessageRef>),
    CopyDead(Vec<MessageRef>),
    Purge {
        ids: Vec<MessageRef>,
        new: Vec<usize>,
    },
    SettleDead(Vec<usize>),
    Unmark(Vec<usize>),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    Read,
    ReadDead,
    End,
}

/// A message as it was read at the source.
pub(crate) type MessageRef = (usize, usize, bool);

impl Protocol {
    fn instants(&self, world: &World) -> Instants {
        let mut ours = Instants::default();
        let latest = world.markers.last().copied();
        let known =
            world.markers.iter().filter(|at| self.broken != Some(Broken::OneInstant) || Some(**at) == latest);
        known.for_each(|at| ours.add(Timestamp::from_millis((*at).into())));
        ours
    }

    /// The calls of the next step, if it is one with calls.
    pub(crate) fn calls(world: &World) -> Vec<MigrationCall> {
        let each = |ids: &[usize], call: fn(usize) -> MigrationCall| ids.iter().map(|i| call(*i)).collect();
        let seen = |ids: &[MessageRef], call: &dyn Fn(MessageRef) -> MigrationCall| {
            ids.iter().map(|seen| call(*seen)).collect()
        };
        let asked = world.next;
        match &world.tool {
            Tool::Park(ids, _) => seen(ids, &|(i, content, tried)| MigrationCall::Park(i, content, tried)),
            Tool::Outdate { ids, .. } => each(ids, MigrationCall::Drop),
            Tool::Cancel(ids, _) => seen(ids, &|(i, content, _)| MigrationCall::Cancel(i, asked, content)),
            Tool::Apply { live, drop, .. } => live
                .iter()
                .map(|i| MigrationCall::Live(*i))
                .chain(drop.iter().map(|i| MigrationCall::Drop(*i)))
                .collect(),
            Tool::MarkDead(ids) => {
                let free = ids.iter().filter(|(i, ..)| world.messages[*i].is_free());
                free.map(|(i, ..)| MigrationCall::Mark(*i)).collect()
            }
            Tool::CopyDead(ids) => seen(ids, &|(i, content, _)| MigrationCall::CopyDead(i, content)),
            Tool::Purge { ids, .. } => seen(ids, &|(i, content, _)| MigrationCall::Purge(i, content)),
            Tool::SettleDead(ids) | Tool::WithdrawDead { ids, .. } => each(ids, MigrationCall::PurgeCopy),
            Tool::Unmark(ids) | Tool::UnmarkDead { ids, .. } => each(ids, MigrationCall::Unmark),
            _ => Vec::new(),
        }
    }

    fn may_drop(&self, both: &Both, outcome: CopyOutcome) -> bool {
        match outcome {
            CopyOutcome::Drop(WithdrawReason::AtSource | WithdrawReason::Cancelled) => true,
            CopyOutcome::Stay => {
                self.broken == Some(Broken::DropsInFlight) && both.source == Source::InFlight
            }
            CopyOutcome::Live(_) | CopyOutcome::Dead | CopyOutcome::Forgotten => false,
        }
    }

    /// Not brought to life if what was cancelled is not what the copy, or what was read, was made of.
    fn checked(&self, both: &Both, outcome: CopyOutcome, content: usize) -> CopyOutcome {
        let is_gone = both.record().is_some_and(|record| is_another(&record, accepted(content)));
        let is_told = self.broken != Some(Broken::TakesAnother);
        if is_gone && is_told && matches!(outcome, CopyOutcome::Live(_)) {
            CopyOutcome::Forgotten
        } else {
            outcome
        }
    }

    pub(crate) fn step(&self, world: &mut World) {
        let asked = world.next;
        let answers = |ids: &[MessageRef], from: State| -> Vec<(MessageRef, Changed)> {
            ids.iter().map(|seen| (*seen, world.messages[seen.0].answer(from))).collect()
        };
        let answers = match &world.tool {
            Tool::Cancel(ids, _) => answers(ids, State::Pending),
            Tool::Purge { ids, .. } => answers(ids, State::Dead),
            _ => Vec::new(),
        };
        let was_free: Vec<_> = world.messages.iter().map(Both::is_free).collect();
        let was_parked: Vec<_> = world.messages.iter().map(|both| both.target == Target::Parked).collect();
        for call in Self::calls(world) {
            world.do_it(call);
        }
        world.tool = match world.tool.clone() {
            Tool::FinishDead { last } => self.finish_dead(world, last),
            Tool::WithdrawDead { last, .. } => {
                Tool::UnmarkDead { ids: world.unfinished.iter().copied().collect(), last }
            }
            Tool::UnmarkDead { last, .. } => {
                world.unfinished.clear();
                Tool::Finish { last }
            }
            Tool::Finish { last } => self.finish(world, last),
            Tool::Read => {
                let late = world.may_come_late;
                let waits = late && self.broken != Some(Broken::ParksWhileLate);
                let skips = |both: &Both| waits && both.target == Target::Withdrawn;
                Self::read(world, Source::Pending, skips, |seen| Tool::Park(seen, late), Tool::ReadDead)
            }
            Tool::Park(ids, late) => {
                world.markers.insert(asked);
                self.parked(world, ids, &was_free, late)
            }
            Tool::Outdate { then, late, .. } => Self::cancel(then, late),
            Tool::Cancel(_, late) => Tool::Decide(answers, late),
            Tool::Decide(answers, late) => self.decide(world, &answers, late),
            Tool::Apply { retire, then, .. } => {
                retire.iter().for_each(|at| _ = world.markers.remove(at));
                match then {
                    Next::Read => Tool::Read,
                    Next::ReadDead => Tool::ReadDead,
                    Next::End => Self::end(world),
                }
            }
            Tool::ReadDead => {
                let finish = Self::finish_dead_step(world);
                let waits = world.may_come_late && self.broken != Some(Broken::ParksWhileLate);
                let skips = |both: &Both| waits && both.target == Target::Withdrawn;
                let mark =
                    if self.broken == Some(Broken::MarksNoDead) { Tool::CopyDead } else { Tool::MarkDead };
                Self::read(world, Source::Dead, skips, mark, finish)
            }
            Tool::MarkDead(ids) => {
                world.unfinished.extend(ids.iter().map(|(i, ..)| *i).filter(|i| was_free[*i]));
                let copies_parked = self.broken == Some(Broken::CopiesWhereParked);
                let may_go = |(i, ..): &MessageRef| !was_parked[*i] || copies_parked;
                Tool::CopyDead(ids.into_iter().filter(may_go).collect())
            }
            Tool::CopyDead(ids) => {
                let is_there = |(i, content, _): &MessageRef| {
                    let both = &world.messages[*i];
                    both.copy == *content && both.target != Target::Parked
                };
                let new = ids.iter().map(|(i, ..)| *i).filter(|i| was_free[*i]).collect();
                Tool::Purge { ids: ids.into_iter().filter(is_there).collect(), new }
            }
            Tool::Purge { new, .. } => {
                let is_back = |answer: &Changed| after_purge(*answer) == DeadOutcome::Withdraw;
                let back = answers.iter().filter(|((i, ..), answer)| new.contains(i) && is_back(answer));
                Tool::SettleDead(back.map(|((i, ..), _)| *i).collect())
            }
            Tool::SettleDead(_) => Tool::Unmark(world.unfinished.iter().copied().collect()),
            Tool::Unmark(_) => {
                world.unfinished.clear();
                Self::finish_dead_step(world)
            }
            tool @ (Tool::Off | Tool::Done) => tool,
        };
    }

    /// What is in a state at the source, unless its batch was cut short.
    fn read(
        world: &World,
        state: Source,
        skips: impl Fn(&Both) -> bool,
        some: impl Fn(Vec<MessageRef>) -> Tool,
        none: Tool,
    ) -> Tool {
        let messages = world.messages.iter().enumerate();
        let held = |i: &usize| world.unfinished.contains(i);
        let wanted = messages.filter(|(i, both)| both.source == state && !held(i) && !skips(both));
        let seen: Vec<_> = wanted.map(|(i, both)| (i, both.content, both.tried)).collect();
        if seen.is_empty() { none } else { some(seen) }
    }

    fn finish_dead(&self, world: &World, last: bool) -> Tool {
        let waits = world.may_come_late && self.broken != Some(Broken::IgnoresLatePurges);
        if world.unfinished.is_empty() || waits {
            return Tool::Finish { last };
        }
        let is_withdrawn = |i: &usize| {
            let both = &world.messages[*i];
            both.target == Target::Dead && of_dead_copy(both.record().as_ref()) == DeadOutcome::Withdraw
        };
        Tool::WithdrawDead { ids: world.unfinished.iter().copied().filter(is_withdrawn).collect(), last }
    }

    fn finish(&self, world: &World, last: bool) -> Tool {
        let ours = self.instants(world);
        let (mut live, mut drop) = (Vec::new(), Vec::new());
        for (i, both) in world.messages.iter().enumerate().filter(|(_, both)| both.target == Target::Parked) {
            match self.checked(both, of_parked(both.record().as_ref(), &ours), both.copy) {
                CopyOutcome::Live(_) => live.push(i),
                outcome if self.may_drop(both, outcome.by_now(world.may_come_late)) => drop.push(i),
                _ => {}
            }
        }
        Tool::Apply { live, drop, retire: None, then: if last { Next::End } else { Next::Read } }
    }

    /// After the copies were answered for: those that tell of something else, or not of the last try, are withdrawn for another pass.
    /// A withdrawal that comes late may meet a copy that was parked before: its message is not cancelled until none can.
    fn parked(&self, world: &World, ids: Vec<MessageRef>, was_free: &[bool], late: bool) -> Tool {
        let copy = |i: usize| (world.messages[i].copy, world.messages[i].copy_tried);
        let is_parked = |i: usize| world.messages[i].target == Target::Parked;
        let (outdated, then): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|(i, content, tried)| is_parked(*i) && copy(*i) != (*content, *tried));
        let is_safe = |i: usize| was_free[i] || !late || self.broken == Some(Broken::CancelsWhileLate);
        let may_go = |(i, content, _): &MessageRef| copy(*i).0 == *content && is_safe(*i);
        let then: Vec<_> = then.into_iter().filter(may_go).collect();
        let waits = match self.broken {
            Some(Broken::WithdrawsWhileLate) => false,
            Some(Broken::AsksLater) => world.may_come_late,
            _ => late,
        };
        if outdated.is_empty() || waits {
            return Self::cancel(then, late);
        }
        Tool::Outdate { ids: outdated.into_iter().map(|(i, ..)| i).collect(), then, late }
    }

    fn cancel(ids: Vec<MessageRef>, late: bool) -> Tool {
        if ids.is_empty() { Tool::ReadDead } else { Tool::Cancel(ids, late) }
    }

    /// After the cancel was answered, and the records read again.
    fn decide(&self, world: &mut World, answers: &[(MessageRef, Changed)], late: bool) -> Tool {
        let asked = world.next;
        world.next += 1;
        let ours = self.instants(world);
        let (mut live, mut drop, mut in_doubt) = (Vec::new(), Vec::new(), false);
        for ((i, content, _), answer) in answers {
            let both = &world.messages[*i];
            // The target has it by other ways than a parked copy.
            if both.target != Target::Parked {
                continue;
            }
            let outcome = after_cancel(*answer, both.record().as_ref(), &ours, DUE);
            let outcome = self.checked(both, outcome, *content);
            match outcome {
                CopyOutcome::Live(_) => live.push(*i),
                _ if self.may_drop(both, outcome.by_now(late)) => drop.push(*i),
                _ => in_doubt = true,
            }
        }
        Tool::Apply { live, drop, retire: (!in_doubt).then_some(asked), then: Next::ReadDead }
    }

    fn finish_dead_step(world: &World) -> Tool {
        let is_open = |both: &Both| both.is_open_at_source() || both.source == Source::Dead;
        Tool::FinishDead { last: !world.messages.iter().any(is_open) }
    }

    /// What the source does not know, or has no body of any more, stays parked and is told.
    fn end(world: &mut World) -> Tool {
        let is_told = |both: &Both| {
            let is_forgotten = both.source == Source::Unknown;
            is_forgotten || both.record().is_some_and(|record| is_another(&record, accepted(both.copy)))
        };
        let stays = |both: &Both| both.target == Target::Parked && !is_told(both);
        if !world.unfinished.is_empty() || world.messages.iter().any(stays) {
            return Tool::FinishDead { last: false };
        }
        if !world.messages.iter().any(|both| both.target == Target::Parked) {
            world.markers.clear();
            world.marked = BTreeSet::new();
            world.has_begun = false;
        }
        Tool::Done
    }
}
