//! What happens in a run, and when: drawn before it begins, so that it is the same for every implementation.

use std::time::Duration;

use duly_core::MessageId;

use super::{Fault, Mix, dice::Dice, world::World};

/// How long messages come in and faults strike.
pub(super) const TROUBLE: Duration = Duration::from_secs(60);

/// The push sinks.
pub(super) const SINKS: [&str; 2] = ["alpha", "beta"];

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    /// A topic of a push sink.
    Sink(&'static str, &'static str),
    /// The queue with a handler.
    Handler,
    /// The queue with a client that receives.
    Client,
}

impl Road {
    const ALL: [Self; 6] = [
        Self::Sink(SINKS[0], "one"),
        Self::Sink(SINKS[0], "two"),
        Self::Sink(SINKS[1], "one"),
        Self::Sink(SINKS[1], "two"),
        Self::Handler,
        Self::Client,
    ];

    /// The target, as a message names it.
    pub(super) fn target(self) -> (&'static str, &'static str) {
        match self {
            Self::Sink(name, topic) => (name, topic),
            Self::Handler => ("queue", "handled"),
            Self::Client => ("queue", "received"),
        }
    }
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A producer sends; `quietly`: through another node, of which this one hears nothing.
    Send {
        id: MessageId,
        road: Road,
        delay: Duration,
        attempts: u32,
        max_lateness: Option<Duration>,
        quietly: bool,
    },
    /// A producer sends one of the earlier messages again.
    SendAgain {
        which: u64,
    },
    Cancel {
        which: u64,
    },
    Move {
        which: u64,
        delay: Duration,
    },
    /// Wall time steps by so many milliseconds.
    Jump {
        by_ms: i64,
    },
    /// The process stands still.
    Freeze {
        span: Duration,
    },
    Crash,
    /// The process is asked to stop, and is started again once it has.
    Stop,
    /// An operator pauses the first sink, or resumes it.
    Pause {
        paused: bool,
    },
    /// Faults stop.
    Heal,
}

/// The script of a run, by the time since its start, the last first.
pub(super) fn script(world: &World) -> Vec<(Duration, Step)> {
    let mut dice = world.dice(1);
    let mut steps = vec![(TROUBLE, Step::Heal)];
    let count = 24 + dice.below(25);
    for number in 0..count {
        let at = dice.millis(0, 30_000);
        steps.push((at, send(world, &mut dice, number)));
    }
    for _ in 0..count / 3 {
        let (at, which) = (dice.millis(500, 45_000), dice.below(1 << 32));
        steps.push(match dice.below(4) {
            0 => (at, Step::SendAgain { which }),
            1 => (at, Step::Move { which, delay: dice.millis(0, 9_000) }),
            _ => (at, Step::Cancel { which }),
        });
    }
    // Without any fault the run is quiet: every message must be on time.
    let quiet = world.mix == Mix::default();
    if dice.chance(30) && !quiet {
        steps.push((dice.millis(1000, 50_000), Step::Stop));
    }
    if dice.chance(30) && !quiet {
        let (from, until) = (dice.millis(1000, 30_000), dice.millis(30_000, 50_000));
        steps.push((from, Step::Pause { paused: true }));
        steps.push((until, Step::Pause { paused: false }));
    }
    if world.mix.has(Fault::ClockJump) {
        for _ in 0..1 + dice.below(4) {
            let by = dice.millis(300, 120_000).as_millis() as i64;
            let by_ms = if dice.chance(50) { by } else { -by };
            steps.push((dice.millis(1000, 50_000), Step::Jump { by_ms }));
        }
    }
    if world.mix.has(Fault::PausedProcess) {
        for _ in 0..1 + dice.below(2) {
            steps.push((dice.millis(1000, 45_000), Step::Freeze { span: dice.millis(1000, 120_000) }));
        }
    }
    if world.mix.has(Fault::Crash) {
        for _ in 0..1 + dice.below(3) {
            steps.push((dice.millis(500, 50_000), Step::Crash));
        }
    }
    steps.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    steps
}

fn send(world: &World, dice: &mut Dice, number: u64) -> Step {
    let road = Road::ALL[dice.below(6) as usize];
    // Many meet in the same few moments: batches, and not only single messages.
    let delay = match dice.below(4) {
        0 => Duration::ZERO,
        1 => Duration::from_secs(dice.below(4) * 3),
        _ => dice.millis(1, 20_000),
    };
    let attempts = if dice.chance(20) { 4 } else { 16 };
    let max_lateness = dice.chance(15).then(|| dice.millis(500, 8_000));
    let quietly = world.mix.has(Fault::LostWakeUp) && dice.chance(60);
    let id = MessageId::parse(&format!("m{number:02}")).unwrap();
    Step::Send { id, road, delay, attempts, max_lateness, quietly }
}
