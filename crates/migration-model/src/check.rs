//! What must hold whatever happens.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::{
    model::{Broken, Others, Protocol, Tool},
    world::{Both, CONTENTS, MigrationCall, OTHERS, Source, Target, World},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Claim(usize),
    Deliver(usize),
    Return(usize),
    Die(usize),
    Replay(usize),
    CancelAtSource(usize),
    Forget(usize),
    SendAgain(usize),
    DeliverAtTarget(usize),
    DoneLate(MigrationCall),
    /// Nothing can come late any more.
    LateEnds,
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
    /// What others may do to a message.
    fn deeds(&self, world: &World, i: usize, both: &Both, actions: &mut Vec<Action>) {
        let Others { die, forget, send_again } = self.others;
        match both.source {
            Source::Pending => actions.extend([Action::Claim(i), Action::CancelAtSource(i)]),
            Source::InFlight => {
                actions.extend([Action::Deliver(i), Action::Return(i)]);
                actions.extend(die.then_some(Action::Die(i)));
            }
            Source::Dead => actions.extend((!both.replayed).then_some(Action::Replay(i))),
            Source::Delivered | Source::Cancelled(_) => {
                // Assumed, see ADR 0037: what was sent again since it was read is not forgotten before the answer to its cancel.
                let is_between = matches!(world.tool, Tool::Decide(..)) && !both.is_same();
                actions.extend((forget && !is_between).then_some(Action::Forget(i)));
                let may_send =
                    send_again && both.source == Source::Cancelled(OTHERS) && both.content + 1 < CONTENTS;
                actions.extend(may_send.then_some(Action::SendAgain(i)));
            }
            Source::Unknown => {}
        }
        if both.target == Target::Live {
            actions.push(Action::DeliverAtTarget(i));
        }
    }
}

impl Both {
    fn act(&mut self, action: &Action) {
        match action {
            Action::Claim(_) => self.source = Source::InFlight,
            Action::Return(_) => (self.source, self.tried) = (Source::Pending, true),
            Action::Deliver(_) => {
                self.source = Source::Delivered;
                self.messages[self.content].deliveries += 1;
            }
            Action::Die(_) => (self.source, self.tried) = (Source::Dead, true),
            Action::Replay(_) => (self.source, self.tried, self.replayed) = (Source::Pending, false, true),
            Action::CancelAtSource(_) => {
                self.source = Source::Cancelled(OTHERS);
                self.messages[self.content].is_cancelled = true;
            }
            Action::Forget(_) => self.source = Source::Unknown,
            Action::SendAgain(_) => {
                (self.source, self.tried) = (Source::Pending, false);
                self.content += 1;
            }
            Action::DeliverAtTarget(_) => {
                self.target = Target::Delivered;
                self.messages[self.copy].deliveries += 1;
            }
            _ => {}
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            messages: vec![Both::new(); self.messages],
            markers: BTreeSet::new(),
            marked: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            next: 0,
            tool: Tool::Off,
            late: BTreeSet::new(),
            may_come_late: false,
            has_begun: false,
            faults: self.faults,
            crashes: self.crashes,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (i, both) in world.messages.iter().enumerate() {
            self.deeds(world, i, both, actions);
        }
        actions.extend(world.late.iter().map(|call| Action::DoneLate(*call)));
        if world.may_come_late {
            actions.push(Action::LateEnds);
        }
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
        match &action {
            Action::DoneLate(call) => {
                world.late.remove(call);
                world.do_it(*call);
            }
            Action::LateEnds => {
                world.late.clear();
                world.may_come_late = false;
            }
            Action::Start => {
                world.tool = Tool::FinishDead { last: false };
                // The marker of a run before it is there: calls of that may come late.
                world.may_come_late |= world.has_begun;
                world.has_begun = true;
                world.unfinished = world.marked.clone();
            }
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
                if matches!(world.tool, Tool::Park(..)) {
                    world.markers.insert(world.next);
                }
                for (call, is_done) in Self::calls(&world).into_iter().zip(done) {
                    if *is_done { world.do_it(call) } else { _ = world.late.insert(call) }
                }
                world.next += 1;
                world.may_come_late = true;
                world.tool = Tool::FinishDead { last: false };
            }
            Action::Claim(i)
            | Action::Deliver(i)
            | Action::Return(i)
            | Action::Die(i)
            | Action::Replay(i) => {
                world.messages[*i].act(&action);
            }
            Action::CancelAtSource(i)
            | Action::Forget(i)
            | Action::SendAgain(i)
            | Action::DeliverAtTarget(i) => {
                world.messages[*i].act(&action);
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
                world.messages.iter().all(|both| (0..CONTENTS).all(|content| both.is_kept(content)))
            }),
            Property::always("none is deliverable in both", |_, world: &World| {
                let is_twice =
                    |both: &Both| both.is_open_at_source() && both.is_same() && both.target == Target::Live;
                !world.messages.iter().any(is_twice)
            }),
            Property::always("none is delivered twice", |_, world: &World| {
                world.messages.iter().all(|both| both.messages.iter().all(|entry| entry.deliveries <= 1))
            }),
            Property::always("what is cancelled stays so", |_, world: &World| {
                let is_out = |both: &Both| matches!(both.target, Target::Live | Target::Delivered);
                !world.messages.iter().any(|both| both.messages[both.copy].is_cancelled && is_out(both))
            }),
            Property::always(
                "a finished move leaves nothing parked but what it tells",
                |_, world: &World| {
                    let is_open = |both: &Both| both.is_open_at_source() || both.source == Source::Dead;
                    let is_stuck =
                        |both: &Both| both.target == Target::Parked && is_open(both) && both.is_same();
                    world.tool != Tool::Done || !world.messages.iter().any(is_stuck)
                },
            ),
            Property::always("a finished move leaves no dead letter with both", |_, world: &World| {
                let is_twice = |both: &Both| both.target == Target::Dead && both.source == Source::Dead;
                world.tool != Tool::Done || !world.messages.iter().any(is_twice)
            }),
            Property::always(
                "what is replayed at the source is not put back among the dead",
                |_, world: &World| {
                    let is_ours = |both: &Both| matches!(both.source, Source::Cancelled(at) if at != OTHERS);
                    // A call that was about an earlier message with its id is another matter, and told.
                    let is_meant = |both: &Both| !both.messages[both.content].was_mistaken;
                    let is_dead = |both: &Both| {
                        is_ours(both) && is_meant(both) && both.is_same() && both.target == Target::Dead
                    };
                    !world.messages.iter().any(is_dead)
                },
            ),
            Property::sometimes("a move ends", |_, world: &World| {
                world.tool == Tool::Done && world.messages.iter().all(|both| both.target == Target::Live)
            }),
        ]
    }
}

const ALL: Others = Others { die: true, forget: true, send_again: true };
const DIE: Others = Others { die: true, forget: false, send_again: false };
const NONE: Others = Others { die: false, forget: false, send_again: false };

#[test]
fn no_order_of_calls_crashes_and_late_commits_loses_a_message_or_leaves_it_with_both() {
    for (messages, faults, crashes, others) in
        [(1, 3, 1, NONE), (2, 1, 1, NONE), (1, 2, 1, DIE), (1, 2, 0, ALL), (1, 1, 1, ALL)]
    {
        let protocol = Protocol { messages, faults, crashes, others, broken: None };
        let until = HasDiscoveries::AnyFailures;
        let checked = protocol.checker().threads(2).finish_when(until).spawn_bfs().join();
        println!("{messages} messages, {others:?}: {} states", checked.unique_state_count());
        checked.assert_properties();
    }
}

#[test]
fn the_model_notices_each_rule_that_is_left_out() {
    let lost = "none is lost";
    for (broken, others, property) in [
        (Broken::OneInstant, NONE, lost),
        (Broken::DropsInFlight, NONE, lost),
        (Broken::MarksNoDead, DIE, "what is replayed at the source is not put back among the dead"),
        (Broken::IgnoresLatePurges, DIE, lost),
        (Broken::TakesAnother, ALL, "what is cancelled stays so"),
        (Broken::WithdrawsWhileLate, NONE, lost),
        (Broken::AsksLater, NONE, lost),
        (Broken::ParksWhileLate, ALL, lost),
        (Broken::CancelsWhileLate, DIE, lost),
        (Broken::CopiesWhereParked, DIE, "what is replayed at the source is not put back among the dead"),
    ] {
        let protocol = Protocol { messages: 1, faults: 3, crashes: 1, others, broken: Some(broken) };
        let until = HasDiscoveries::AnyOf([property].into());
        let checked = protocol.checker().threads(2).finish_when(until).spawn_bfs().join();
        assert!(checked.discovery(property).is_some(), "{broken:?} breaks nothing in the model");
        println!("{broken:?}: {} states", checked.unique_state_count());
    }
}
