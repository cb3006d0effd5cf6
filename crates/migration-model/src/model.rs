//! The protocol of a move as a model: every order of its calls, of what others do, and of calls that are lost, done late, or cut off
//! by a crash. What becomes of a copy is decided by the code itself.

use std::collections::BTreeSet;

use duly_core::{Message, MessageId, Record, SinkName, State, Timestamp, Topic, store::Changed};
use stateright::{Checker, Model, Property};

use crate::{
    decide::{Fate, after_cancel, of_parked},
    instants::Instants,
};

const DUE: Timestamp = Timestamp::from_millis(1_000);
/// The instant of every cancel by somebody else.
const OTHERS: u8 = 100;

/// What is checked, and which rule is left out to see that the model would notice.
#[derive(Debug, Clone, Copy)]
struct Protocol {
    messages: usize,
    /// Answers that get lost, whatever became of the calls.
    faults: u8,
    crashes: u8,
    broken: Option<Broken>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// Only the instant of the latest cancel counts as the move's own.
    OneInstant,
    /// The copy of what is under way at the source is withdrawn.
    DropsInFlight,
}

/// One message at both stores.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Both {
    source: Source,
    target: Target,
    deliveries: u8,
    /// Somebody was told that it is cancelled.
    is_cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Pending,
    InFlight,
    Delivered,
    Cancelled(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    None,
    Parked,
    Live,
    Delivered,
    Withdrawn,
}

/// A call of the move about one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Call {
    Park(usize),
    Cancel(usize, u8),
    Live(usize),
    Drop(usize),
}

/// Where the process is. Reads are part of the step that follows them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Tool {
    Off,
    Finish { last: bool },
    Read,
    Park(Vec<usize>),
    Cancel(Vec<usize>),
    Decide(Vec<(usize, Changed)>),
    Apply { live: Vec<usize>, drop: Vec<usize>, retire: Option<u8>, then: Next },
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Next {
    Read,
    Books,
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    messages: Vec<Both>,
    /// The instants that markers at the target stand for.
    markers: BTreeSet<u8>,
    /// The instant of the next batch.
    next: u8,
    tool: Tool,
    /// Calls that nobody heard of any more: each may still be done, or never.
    late: BTreeSet<Call>,
    faults: u8,
    crashes: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Claim(usize),
    Deliver(usize),
    Return(usize),
    CancelAtSource(usize),
    DeliverAtTarget(usize),
    DoneLate(Call),
    Start,
    Crash,
    /// The next step, with its answer heard.
    Step,
    /// The next call is sent and no answer is heard: of which messages it was done. The others' parts may be done late.
    Lost {
        done: Vec<bool>,
    },
}

impl Protocol {
    fn record(both: &Both) -> Record {
        let (id, topic) = (MessageId::parse("a").unwrap(), Topic::parse("order").unwrap());
        let record = Record::accepted(Message::new(id, SinkName::queue(), topic, DUE), None);
        let (state, ended) = match both.source {
            Source::Pending => (State::Pending, None),
            Source::InFlight => (State::InFlight, None),
            Source::Delivered => (State::Delivered, Some(DUE)),
            Source::Cancelled(at) => (State::Cancelled, Some(Timestamp::from_millis(at.into()))),
        };
        Record { state, ended, ..record }
    }

    fn instants(&self, world: &World) -> Instants {
        let mut ours = Instants::default();
        let latest = world.markers.last().copied();
        let known =
            world.markers.iter().filter(|at| self.broken != Some(Broken::OneInstant) || Some(**at) == latest);
        known.for_each(|at| ours.add(Timestamp::from_millis((*at).into())));
        ours
    }

    fn do_it(world: &mut World, call: Call) {
        match call {
            Call::Park(i) if matches!(world.messages[i].target, Target::None | Target::Withdrawn) => {
                world.messages[i].target = Target::Parked;
            }
            Call::Cancel(i, at) if world.messages[i].source == Source::Pending => {
                world.messages[i].source = Source::Cancelled(at);
            }
            Call::Live(i) if world.messages[i].target == Target::Parked => {
                world.messages[i].target = Target::Live;
            }
            Call::Drop(i) if matches!(world.messages[i].target, Target::Parked | Target::Live) => {
                world.messages[i].target = Target::Withdrawn;
            }
            _ => {}
        }
    }

    /// The store's answer to a cancel, before it is done.
    fn answer(both: &Both) -> Changed {
        match both.source {
            Source::Pending => Changed::Done { maybe_delivered: false },
            Source::InFlight => Changed::TooLate(State::InFlight),
            Source::Delivered => Changed::TooLate(State::Delivered),
            Source::Cancelled(_) => Changed::TooLate(State::Cancelled),
        }
    }

    /// The calls of the next step, if it is one with calls.
    fn calls(world: &World) -> Vec<Call> {
        let asked = world.next;
        match &world.tool {
            Tool::Park(ids) => ids.iter().map(|i| Call::Park(*i)).collect(),
            Tool::Cancel(ids) => ids.iter().map(|i| Call::Cancel(*i, asked)).collect(),
            Tool::Apply { live, drop, .. } if !live.is_empty() || !drop.is_empty() => {
                live.iter().map(|i| Call::Live(*i)).chain(drop.iter().map(|i| Call::Drop(*i))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn may_drop(&self, both: &Both, fate: Fate) -> bool {
        match fate {
            Fate::Drop(_) => true,
            Fate::Stay => self.broken == Some(Broken::DropsInFlight) && both.source == Source::InFlight,
            Fate::Live(_) | Fate::Dead | Fate::Forgotten => false,
        }
    }

    fn step(&self, world: &mut World) {
        let asked = world.next;
        let answers: Vec<_> = match &world.tool {
            Tool::Cancel(ids) => ids.iter().map(|i| (*i, Self::answer(&world.messages[*i]))).collect(),
            _ => Vec::new(),
        };
        for call in Self::calls(world) {
            Self::do_it(world, call);
        }
        world.tool = match world.tool.clone() {
            Tool::Finish { last } => {
                let ours = self.instants(world);
                let (mut live, mut drop) = (Vec::new(), Vec::new());
                for (i, both) in
                    world.messages.iter().enumerate().filter(|(_, both)| both.target == Target::Parked)
                {
                    match of_parked(Some(&Self::record(both)), &ours) {
                        Fate::Live(_) => live.push(i),
                        fate if self.may_drop(both, fate) => drop.push(i),
                        _ => {}
                    }
                }
                Tool::Apply { live, drop, retire: None, then: if last { Next::End } else { Next::Read } }
            }
            Tool::Read => {
                let pending = |both: &Both| both.source == Source::Pending;
                let ids: Vec<_> =
                    (0..world.messages.len()).filter(|i| pending(&world.messages[*i])).collect();
                let is_idle = ids.is_empty();
                if is_idle { self.books(world) } else { Tool::Park(ids) }
            }
            Tool::Park(ids) => {
                world.markers.insert(asked);
                Tool::Cancel(ids)
            }
            Tool::Cancel(_) => Tool::Decide(answers),
            Tool::Decide(answers) => self.decide(world, &answers),
            Tool::Apply { retire, then, .. } => {
                retire.iter().for_each(|at| _ = world.markers.remove(at));
                match then {
                    Next::Read => Tool::Read,
                    Next::Books => self.books(world),
                    Next::End => Self::end(world),
                }
            }
            tool @ (Tool::Off | Tool::Done) => tool,
        };
    }

    /// After the cancel was answered, and the records read again.
    fn decide(&self, world: &mut World, answers: &[(usize, Changed)]) -> Tool {
        let asked = world.next;
        world.next += 1;
        let ours = self.instants(world);
        let (mut live, mut drop, mut in_doubt) = (Vec::new(), Vec::new(), false);
        for (i, answer) in answers {
            let both = &world.messages[*i];
            // The target has it by other ways than a parked copy.
            if both.target != Target::Parked {
                continue;
            }
            let fate = after_cancel(*answer, Some(&Self::record(both)), &ours, DUE);
            match fate {
                Fate::Live(_) => live.push(*i),
                _ if self.may_drop(both, fate) => drop.push(*i),
                _ => in_doubt |= matches!(fate, Fate::Stay),
            }
        }
        Tool::Apply { live, drop, retire: (!in_doubt).then_some(asked), then: Next::Books }
    }

    fn books(&self, world: &World) -> Tool {
        let is_open = |both: &Both| matches!(both.source, Source::Pending | Source::InFlight);
        Tool::Finish { last: !world.messages.iter().any(is_open) }
    }

    fn end(world: &mut World) -> Tool {
        let is_parked = world.messages.iter().any(|both| both.target == Target::Parked);
        if is_parked {
            return Tool::Finish { last: false };
        }
        world.markers.clear();
        Tool::Done
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let fresh =
            Both { source: Source::Pending, target: Target::None, deliveries: 0, is_cancelled: false };
        vec![World {
            messages: vec![fresh; self.messages],
            markers: BTreeSet::new(),
            next: 0,
            tool: Tool::Off,
            late: BTreeSet::new(),
            faults: self.faults,
            crashes: self.crashes,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (i, both) in world.messages.iter().enumerate() {
            match both.source {
                Source::Pending => actions.extend([Action::Claim(i), Action::CancelAtSource(i)]),
                Source::InFlight => actions.extend([Action::Deliver(i), Action::Return(i)]),
                Source::Delivered | Source::Cancelled(_) => {}
            }
            if both.target == Target::Live {
                actions.push(Action::DeliverAtTarget(i));
            }
        }
        actions.extend(world.late.iter().map(|call| Action::DoneLate(*call)));
        match world.tool {
            Tool::Off => actions.push(Action::Start),
            Tool::Done => return,
            _ => actions.push(Action::Step),
        }
        if world.tool != Tool::Off && world.crashes > 0 {
            actions.push(Action::Crash);
        }
        let calls = Self::calls(world).len();
        if calls > 0 && world.faults > 0 {
            let ways = (0..1_usize << calls).map(|bits| (0..calls).map(|i| bits >> i & 1 == 1).collect());
            actions.extend(ways.map(|done| Action::Lost { done }));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        match action {
            Action::Claim(i) => world.messages[i].source = Source::InFlight,
            Action::Return(i) => world.messages[i].source = Source::Pending,
            Action::Deliver(i) => {
                world.messages[i].source = Source::Delivered;
                world.messages[i].deliveries += 1;
            }
            Action::CancelAtSource(i) => {
                world.messages[i].source = Source::Cancelled(OTHERS);
                world.messages[i].is_cancelled = true;
            }
            Action::DeliverAtTarget(i) => {
                world.messages[i].target = Target::Delivered;
                world.messages[i].deliveries += 1;
            }
            Action::DoneLate(call) => {
                world.late.remove(&call);
                Self::do_it(&mut world, call);
            }
            Action::Start => world.tool = Tool::Finish { last: false },
            Action::Crash => {
                world.crashes -= 1;
                // The instants that it used are never used again: a new run reads the clock.
                world.next += 1;
                world.tool = Tool::Off;
            }
            Action::Step => self.step(&mut world),
            Action::Lost { done } => {
                world.faults -= 1;
                // The marker goes out before the copies, in the same call.
                if matches!(world.tool, Tool::Park(_)) {
                    world.markers.insert(world.next);
                }
                for (call, is_done) in Self::calls(&world).into_iter().zip(done) {
                    if is_done { Self::do_it(&mut world, call) } else { _ = world.late.insert(call) }
                }
                world.next += 1;
                world.tool = Tool::Finish { last: false };
            }
        }
        Some(world)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.next < 5
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("none is lost", |_, world: &World| {
                world.messages.iter().all(Both::is_somewhere)
            }),
            Property::always("none is deliverable in both", |_, world: &World| {
                world.messages.iter().all(|both| !(both.is_open_at_source() && both.target == Target::Live))
            }),
            Property::always("none is delivered twice", |_, world: &World| {
                world.messages.iter().all(|both| both.deliveries <= 1)
            }),
            Property::always("what is cancelled stays so", |_, world: &World| {
                let is_out = |both: &Both| matches!(both.target, Target::Live | Target::Delivered);
                world.messages.iter().all(|both| !(both.is_cancelled && is_out(both)))
            }),
            Property::always("a finished move leaves nothing parked", |_, world: &World| {
                let is_stuck = |both: &Both| both.target == Target::Parked && !both.is_over();
                world.tool != Tool::Done || !world.messages.iter().any(is_stuck)
            }),
            Property::sometimes("a move ends", |_, world: &World| {
                world.tool == Tool::Done && world.messages.iter().all(|both| both.target == Target::Live)
            }),
        ]
    }
}

impl Both {
    fn is_open_at_source(&self) -> bool {
        matches!(self.source, Source::Pending | Source::InFlight)
    }

    /// Delivered, or cancelled by somebody who was told so.
    fn is_over(&self) -> bool {
        self.is_cancelled || self.deliveries > 0
    }

    fn is_somewhere(&self) -> bool {
        self.is_over() || self.is_open_at_source() || matches!(self.target, Target::Parked | Target::Live)
    }
}

fn check(protocol: Protocol) -> impl Checker<Protocol> {
    protocol.checker().threads(2).spawn_bfs().join()
}

#[test]
fn no_order_of_calls_crashes_and_late_commits_loses_a_message_or_leaves_it_with_both() {
    for (messages, faults, crashes) in [(1, 3, 1), (2, 1, 1)] {
        let checked = check(Protocol { messages, faults, crashes, broken: None });
        checked.assert_properties();
        println!("{messages} messages: {} states", checked.unique_state_count());
    }
}

#[test]
fn the_model_notices_each_rule_that_is_left_out() {
    for broken in [Broken::OneInstant, Broken::DropsInFlight] {
        let checked = check(Protocol { messages: 1, faults: 3, crashes: 1, broken: Some(broken) });
        assert!(checked.discovery("none is lost").is_some(), "{broken:?} loses nothing in the model");
    }
}
