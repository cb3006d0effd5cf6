//! One delivery call: publishes each message where it cannot harm others, and reports each outcome when it is known.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

use duly_core::{Clock, ErrorScope, Monotonic, Outcomes, SinkError};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::{
    Outcome,
    confirm_pace::PublishDecision,
    connection::{BrokerConnection, FREE_CHANNEL_WAIT},
    failure,
    message::OutgoingMessage,
    publisher::{Job, PublishEvent, Publisher},
    returned_queues::{self, ReturnedQueues},
    trial::try_alone,
    trust::PublishMode,
};

/// Maximum of messages of one call that are published alone at the same time, each on a channel of its own.
const ALONE_MAX: usize = 8;
/// A message whose channel was closed or blocked by others this many times is left to the next call.
const AGAIN_MAX: u8 = 16;
/// Interval at which held messages are checked, and the longest time that a message is held.
const HOLD_TICK: Duration = Duration::from_millis(50);
const HOLD_MAX: Duration = Duration::from_secs(1);
pub(super) const LOST_BEFORE: &str = "the connection was lost before this was sent";

/// Deadlines of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// With messages unconfirmed by then, the broker is probed: one queue may be silent, or the broker.
    pub(super) check: Monotonic,
    pub(super) end: Monotonic,
}

/// Progress of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    /// Returned; its queue is queried.
    Returned,
    Done,
}

/// The result of a step of the call.
pub(super) enum Step {
    /// Published on shared channels.
    Shared,
    /// For these no shared channel could be opened.
    Unshared(Vec<(Job, SinkError)>),
    /// No channel could be opened for a trial.
    Unsent(Vec<Job>, SinkError),
    /// The trial passed: the others of its exchange may follow.
    TrialEnded(Vec<Job>),
    /// The trial was denied for its exchange, and so are the others.
    Denied(Vec<Job>, SinkError),
    /// The trial is not answered and goes on. A message to another destination becomes the trial.
    Slow(Vec<Job>, BoxFuture<'static, Step>),
    /// The error of returned messages to this destination.
    ReturnedQueue(u64, SinkError),
}

pub(super) struct PublishCall<'a> {
    connection: BrokerConnection,
    clock: &'a dyn Clock,
    outcomes: &'a Outcomes<'a>,
    /// By place in the batch; those without a form in AMQP are done from the beginning.
    stages: Vec<Stage>,
    again: Vec<u8>,
    jobs: Vec<Option<Job>>,
    left: usize,
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    /// Groups that wait to be published alone.
    alone: VecDeque<Vec<Job>>,
    alone_running: usize,
    /// Messages to paused destinations.
    held: Vec<Job>,
    hold_until: Monotonic,
    release_at: Monotonic,
    /// Queues whose messages were returned.
    returned_queues: ReturnedQueues,
}

/// Whether the broker still answers at the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broker {
    Alive,
    Silent,
}

impl<'a> PublishCall<'a> {
    pub(super) fn new(
        connection: BrokerConnection,
        clock: &'a dyn Clock,
        outcomes: &'a Outcomes<'a>,
    ) -> Self {
        let (stages, again, jobs) = (Vec::new(), Vec::new(), Vec::new());
        let (steps, alone) = (FuturesUnordered::new(), VecDeque::new());
        let hold_until = clock.now().mono().saturating_add(HOLD_MAX);
        Self {
            connection,
            clock,
            outcomes,
            stages,
            again,
            jobs,
            left: 0,
            steps,
            alone,
            alone_running: 0,
            held: Vec::new(),
            hold_until,
            release_at: hold_until,
            returned_queues: ReturnedQueues::default(),
        }
    }

    /// Delivers these, each with its place in the batch.
    pub(super) async fn run(mut self, messages: Vec<(usize, Arc<OutgoingMessage>)>, times: Times) -> Broker {
        let (call, mut events) = mpsc::unbounded_channel();
        let count = messages.last().map_or(0, |(position, _)| position + 1);
        self.stages = vec![Stage::Done; count];
        self.again = vec![0; count];
        self.jobs = vec![None; count];
        self.left = messages.len();
        let jobs: Vec<Job> = messages
            .into_iter()
            .map(|(position, message)| Job { position, message, call: call.clone() })
            .collect();
        for job in &jobs {
            self.stages[job.position] = Stage::Waiting;
            self.jobs[job.position] = Some(job.clone());
        }
        self.route(jobs);
        let connection = self.connection.clone();
        let blocked = connection.blocked();
        let clock = self.clock;
        let check = async {
            clock.sleep_until(times.check).await;
            connection.is_alive().await
        };
        let over = clock.sleep_until(times.end);
        tokio::pin!(blocked, check, over);
        let mut is_alive = None;
        while self.left > 0 {
            tokio::select! {
                biased;
                Some(first) = events.recv() => self.on_events(first, &mut events),
                Some(step) = self.steps.next() => self.step(step),
                () = clock.sleep_until(self.release_at), if !self.held.is_empty() => self.release(),
                reason = &mut blocked => self.finish(|_| failure::blocked(&reason)),
                alive = &mut check, if is_alive.is_none() => is_alive = Some(alive),
                () = &mut over => {
                    let is_alive = is_alive == Some(true);
                    self.finish(|stage| unanswered(stage, is_alive));
                    return if is_alive { Broker::Alive } else { Broker::Silent };
                }
            }
        }
        Broker::Alive
    }

    /// Publishes each message: on shared channels what is known to be harmless, the rest alone.
    fn route(&mut self, jobs: Vec<Job>) {
        let (mut shared, mut firsts) = (Vec::new(), BTreeMap::<String, Vec<Job>>::new());
        let now = self.clock.now().mono();
        for job in jobs {
            if self.connection.confirm_pace().decide(job.message.destination, now) == PublishDecision::Wait {
                if self.held.is_empty() {
                    self.release_at = now.saturating_add(HOLD_TICK);
                }
                self.held.push(job);
                continue;
            }
            match self.connection.trust().mode(&job.message) {
                PublishMode::Shared => shared.push(job),
                PublishMode::First => firsts.entry(job.message.exchange.to_string()).or_default().push(job),
                PublishMode::Alone => self.alone.push_back(vec![job]),
            }
        }
        // Messages that may be refused do not delay a new exchange.
        firsts.into_values().for_each(|group| self.alone.push_front(group));
        if !shared.is_empty() {
            self.steps.push(share(self.connection.clone(), shared).boxed());
        }
        self.next_alone();
    }

    /// Routes held messages again. After [`HOLD_MAX`] they fail, as others need their place.
    fn release(&mut self) {
        let held = mem::take(&mut self.held);
        if self.clock.now().mono() < self.hold_until {
            return self.route(held);
        }
        let detail = "not sent: messages before it wait for the confirm of their queue for long";
        for job in held {
            self.report(job.position, Err(SinkError::unreachable(detail).at_destination()));
        }
    }

    fn next_alone(&mut self) {
        while self.alone_running < ALONE_MAX
            && let Some(group) = self.alone.pop_front()
        {
            self.alone_running += 1;
            self.steps.push(try_alone(self.connection.clone(), group).boxed());
        }
    }

    fn step(&mut self, step: Step) {
        if !matches!(step, Step::Shared | Step::Unshared(..) | Step::Slow(..) | Step::ReturnedQueue(..)) {
            self.alone_running = self.alone_running.saturating_sub(1);
        }
        match step {
            Step::Shared => {}
            Step::TrialEnded(rest) => self.route(rest),
            Step::Slow(rest, trial) => {
                self.steps.push(trial);
                self.route(rest);
            }
            Step::Unshared(jobs) => {
                jobs.into_iter().for_each(|(job, failure)| self.report(job.position, Err(failure)));
            }
            Step::Unsent(jobs, failure) | Step::Denied(jobs, failure) => {
                jobs.iter().for_each(|job| self.report(job.position, Err(failure.clone())));
            }
            Step::ReturnedQueue(destination, verdict) => {
                let waiting = self.returned_queues.answered(destination, verdict.clone());
                waiting.into_iter().for_each(|position| self.report(position, Err(verdict.clone())));
                self.ask_returned_queues();
            }
        }
        self.next_alone();
    }

    fn on_events(
        &mut self,
        first: (usize, PublishEvent),
        events: &mut mpsc::UnboundedReceiver<(usize, PublishEvent)>,
    ) {
        let mut again = Vec::new();
        let mut next = Some(first);
        while let Some((position, event)) = next {
            match event {
                PublishEvent::Sent => self.stages[position] = self.stages[position].max_sent(),
                PublishEvent::Done(outcome) => self.report(position, outcome),
                PublishEvent::Returned(words) => self.returned(position, words),
                PublishEvent::Again => again.extend(self.again(position)),
            }
            next = events.try_recv().ok();
        }
        if !again.is_empty() {
            self.route(again);
        }
    }

    /// The message was returned. Its queue is queried if the topic names one, as the node of the queue may be down.
    fn returned(&mut self, position: usize, words: String) {
        let Some(job) = self.jobs[position].clone() else { return };
        if !job.message.exchange.as_str().is_empty() {
            return self.report(position, Err(SinkError::denied(words)));
        }
        self.stages[position] = Stage::Returned;
        if let Some(verdict) = self.returned_queues.returned(position, &job.message, words) {
            return self.report(position, Err(verdict));
        }
        self.ask_returned_queues();
    }

    fn ask_returned_queues(&mut self) {
        while let Some(question) = self.returned_queues.next_question() {
            let connection = self.connection.clone();
            let asked = async move {
                Step::ReturnedQueue(question.destination, returned_queues::ask(&connection, &question).await)
            };
            self.steps.push(asked.boxed());
        }
    }

    fn again(&mut self, position: usize) -> Option<Job> {
        self.again[position] += 1;
        if !self.connection.is_connected() {
            self.report(position, Err(SinkError::unreachable(LOST_BEFORE)));
            return None;
        }
        if self.again[position] > AGAIN_MAX {
            let detail = "not sent: other messages ended its channel again and again";
            self.report(position, Err(SinkError::unreachable(detail).at_destination()));
            return None;
        }
        if self.stages[position] == Stage::Sent {
            self.stages[position] = Stage::Waiting;
        }
        self.jobs[position].clone()
    }

    fn report(&mut self, position: usize, outcome: Outcome) {
        if self.stages[position] != Stage::Done {
            self.stages[position] = Stage::Done;
            self.jobs[position] = None;
            self.left -= 1;
            self.outcomes.report(position, outcome);
        }
    }

    /// Reports all that have no outcome.
    fn finish(&mut self, failure: impl Fn(Stage) -> SinkError) {
        for position in 0..self.stages.len() {
            self.report(position, Err(failure(self.stages[position])));
        }
    }
}

impl Stage {
    fn max_sent(self) -> Self {
        match self {
            Self::Waiting | Self::Sent => Self::Sent,
            Self::Returned | Self::Done => self,
        }
    }
}

/// Why a message has no outcome at the end of its call.
fn unanswered(stage: Stage, is_alive: bool) -> SinkError {
    match (stage, is_alive) {
        (Stage::Returned, true) => {
            SinkError::unreachable("no queue took it, and the broker does not say why in time")
                .at_destination()
        }
        (Stage::Sent, true) => {
            SinkError::unknown("no confirm in time, while the broker answers: its queue is silent")
                .at_destination()
        }
        (Stage::Sent, false) => SinkError::unknown("no confirm in time"),
        (_, true) => {
            SinkError::unreachable("not sent: too many before it wait for their confirm").at_destination()
        }
        (_, false) => SinkError::unreachable("it could not be sent in time"),
    }
}

/// Publishes the messages on shared channels.
async fn share(connection: BrokerConnection, jobs: Vec<Job>) -> Step {
    let open = |job: &Job, wait| connection.publisher(job.message.destination, wait);
    let publish = |publisher: Publisher, job| {
        if let Err(unsent) = publisher.publish(job) {
            unsent.notify(PublishEvent::Again);
        }
    };
    let left = publish_each(jobs, open, publish).await;
    if left.is_empty() { Step::Shared } else { Step::Unshared(left) }
}

/// Publishes each job on the channel that `open` returns. A destination without a channel leaves the others alone. Only the first one waits
/// for a free channel: the others would wait as long, one after the other.
async fn publish_each<J, P, F: Future<Output = Result<P, SinkError>>>(
    jobs: Vec<J>,
    open: impl Fn(&J, Duration) -> F,
    publish: impl Fn(P, J),
) -> Vec<(J, SinkError)> {
    let mut left = Vec::new();
    let (mut wait, mut lost) = (FREE_CHANNEL_WAIT, None);
    for job in jobs {
        if let Some(failure) = &lost {
            left.push((job, SinkError::clone(failure)));
            continue;
        }
        match open(&job, wait).await {
            Ok(publisher) => publish(publisher, job),
            Err(failure) => {
                wait = Duration::ZERO;
                if failure.scope != ErrorScope::Destination {
                    lost = Some(failure.clone());
                }
                left.push((job, failure));
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn a_destination_without_a_channel_leaves_the_others_alone_and_one_waits() {
        let (waits, published) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let run = async |failure: SinkError| {
            let open = |job: &u64, wait| {
                waits.borrow_mut().push(wait);
                std::future::ready(if job.is_multiple_of(2) { Ok(()) } else { Err(failure.clone()) })
            };
            let left = publish_each(vec![1, 2, 3, 4], open, |(), job| published.borrow_mut().push(job)).await;
            left.into_iter().map(|(job, _)| job).collect::<Vec<_>>()
        };
        assert_eq!(run(SinkError::unreachable("no free channel").at_destination()).await, [1, 3]);
        assert_eq!(published.take(), [2, 4]);
        assert_eq!(waits.take(), [FREE_CHANNEL_WAIT, Duration::ZERO, Duration::ZERO, Duration::ZERO]);
        assert_eq!(run(SinkError::unreachable("the connection is lost")).await, [1, 2, 3, 4]);
        assert!(published.take().is_empty());
    }
}
