//! A channel and its unconfirmed messages, of all calls.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::{poll_fn, ready},
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use duly_core::{Clock, Monotonic, SinkError};
use futures_util::{FutureExt, future::BoxFuture};
use lapin::{Channel, Confirmation, PublisherConfirm, message::BasicReturnMessage};
use tokio::sync::mpsc;

use super::{
    Outcome,
    confirm_pace::{ConfirmPace, OVERDUE, Slot},
    failure::{Cause, rejected},
    message::OutgoingMessage,
    trust::Trust,
    verdict::{Unconfirmed, judge},
};

/// What the broker's confirmation says: no more than that.
pub(super) const CONFIRMED: &str = "confirmed";
/// Maximum of messages that are published before confirms are processed.
const TOGETHER_MAX: usize = 256;
/// Maximum of unconfirmed messages on a channel: of one destination, and of all.
///
/// A quorum queue that confirms nothing blocks its channel at 32 messages, and 200 more that are sent on that channel from then on let
/// the broker stop reading from the whole connection, whatever it confirms meanwhile.
const WINDOW: usize = 100;
const WINDOW_OF_ALL: usize = 136;
const CHANNEL_BLOCKS_AT: usize = 32;
const CHANNEL_CREDIT: usize = 200;
const _: () = assert!(WINDOW_OF_ALL + BEHIND_MAX <= CHANNEL_CREDIT && CHANNEL_BLOCKS_AT < WINDOW);
/// After this many confirms without that of an older message, the destination of that message is silent: others use another channel.
const BEHIND_MAX: usize = 64;
/// Destinations of a channel that are remembered to have taken a message, at most; then all are forgotten.
const DESTINATIONS_MAX: usize = 4_096;

/// A channel with so many unanswered messages, or with one of this age, is given up for a new one.
const UNANSWERED_MAX: usize = 4_096;
const STALE: Duration = Duration::from_secs(60);

/// An event of one message, for its call.
#[derive(Debug)]
pub(super) enum PublishEvent {
    /// Published.
    Sent,
    /// The outcome is known.
    Done(Outcome),
    /// Returned by the broker, with its reason.
    Returned(String),
    /// Not accepted: another message closed the channel before it. It can be published again.
    Again,
}

/// A message to publish, and the channel for its events.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) position: usize,
    pub(super) message: Arc<OutgoingMessage>,
    pub(super) call: mpsc::UnboundedSender<(usize, PublishEvent)>,
}

impl Job {
    pub(super) fn notify(&self, event: PublishEvent) {
        // The call may have been dropped.
        let _ = self.call.send((self.position, event));
    }
}

type ConfirmResult = lapin::Result<Confirmation>;

/// A published message that is not answered.
pub(super) struct Entry {
    job: Job,
    answer: BoxFuture<'static, ConfirmResult>,
    /// The broker's reason, if it returned the message.
    returned: Option<String>,
    sent: Monotonic,
    slot: Slot,
}

/// State that the channels of a connection share.
#[derive(Clone)]
pub(super) struct ConnectionContext {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) trust: Arc<Trust>,
    pub(super) confirm_pace: Arc<ConfirmPace>,
}

impl ConnectionContext {
    fn entry(&self, job: Job, answer: BoxFuture<'static, ConfirmResult>) -> Entry {
        let sent = self.clock.now().mono();
        let slot = self.confirm_pace.sent(job.message.destination, sent);
        Entry { job, answer, returned: None, sent, slot }
    }

    /// One whose frames are on their way.
    pub(super) fn sent(&self, job: Job, confirm: PublisherConfirm) -> Entry {
        self.entry(job, confirm.boxed())
    }

    fn publish(&self, job: Job, channel: &Channel) -> Entry {
        let (message, channel) = (job.message.clone(), channel.clone());
        // Its first poll hands the frames over, and so settles its place among the others of the channel.
        self.entry(job, async move { message.publish(&channel).await?.await }.boxed())
    }
}

/// Hands messages to the task of one channel.
#[derive(Clone)]
pub(super) struct Publisher {
    jobs: mpsc::UnboundedSender<Job>,
    unanswered: Arc<AtomicUsize>,
    oldest: Arc<AtomicU64>,
    is_behind: Arc<AtomicBool>,
}

/// The oldest of none.
const NONE: u64 = u64::MAX;

impl Publisher {
    pub(super) fn start(channel: Channel, first: Option<Entry>, shared: ConnectionContext) -> Self {
        let (jobs, waiting) = mpsc::unbounded_channel();
        let task = Task::new(channel, first, shared);
        let (unanswered, oldest) = (task.unanswered.clone(), task.oldest.clone());
        let publisher = Self { jobs, unanswered, oldest, is_behind: task.is_behind.clone() };
        tokio::spawn(task.run(waiting));
        publisher
    }

    /// Publishes the message, or returns it if the channel is closed.
    pub(super) fn publish(&self, job: Job) -> Result<(), Job> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.jobs.send(job).map_err(|unsent| unsent.0)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.jobs.is_closed()
    }

    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Whether a message waits for its confirm while others do not, or for long. The broker may have stopped to work on this
    /// channel, and when more is sent on it, on the whole connection.
    pub(super) fn is_overdue(&self, now: Monotonic) -> bool {
        self.is_behind.load(Ordering::Relaxed) || self.oldest_age(now) > OVERDUE
    }

    /// Whether it waits for confirms that nobody expects any more.
    pub(super) fn is_stale(&self, now: Monotonic) -> bool {
        self.unanswered() >= UNANSWERED_MAX || self.oldest_age(now) > STALE
    }

    fn oldest_age(&self, now: Monotonic) -> Duration {
        match self.oldest.load(Ordering::Relaxed) {
            NONE => Duration::ZERO,
            oldest => now.since(Monotonic::default()).saturating_sub(Duration::from_millis(oldest)),
        }
    }
}

struct Task {
    channel: Channel,
    /// In the order in which the broker gets them.
    entries: VecDeque<Entry>,
    unanswered: Arc<AtomicUsize>,
    /// When the oldest entry was sent, in ms.
    oldest: Arc<AtomicU64>,
    /// Hashes of the destinations that confirmed a message.
    destinations: HashSet<u64>,
    /// How many entries each destination has.
    under_way: HashMap<u64, usize>,
    /// Messages that wait for room in the windows.
    backlog: VecDeque<Job>,
    /// Confirms since the oldest entry was sent.
    behind: usize,
    is_behind: Arc<AtomicBool>,
    shared: ConnectionContext,
}

impl Task {
    fn new(channel: Channel, first: Option<Entry>, shared: ConnectionContext) -> Self {
        Self {
            channel,
            unanswered: Arc::new(AtomicUsize::new(usize::from(first.is_some()))),
            entries: first.into_iter().collect(),
            oldest: Arc::new(AtomicU64::new(NONE)),
            is_behind: Arc::new(AtomicBool::new(false)),
            behind: 0,
            destinations: HashSet::new(),
            under_way: HashMap::new(),
            backlog: VecDeque::new(),
            shared,
        }
    }

    /// Runs until the channel is closed, or no call publishes on it or waits for a confirm.
    async fn run(mut self, mut waiting: mpsc::UnboundedReceiver<Job>) {
        for entry in &self.entries {
            *self.under_way.entry(entry.job.message.destination).or_default() += 1;
        }
        let mut jobs = Vec::new();
        let mut is_needed = true;
        while is_needed || self.awaited().is_some() {
            self.note_oldest();
            let given_up = self.awaited();
            let ended = tokio::select! {
                count = waiting.recv_many(&mut jobs, TOGETHER_MAX), if is_needed => {
                    is_needed = count > 0;
                    self.backlog.extend(jobs.drain(..));
                    self.publish()
                }
                // Nobody may ever confirm what is left, and a channel is not kept for calls that are over.
                () = over(given_up), if !is_needed => Ok(()),
                ripe = poll_fn(|cx| self.ripe(cx)) => self.settle(ripe).and_then(|()| self.publish()),
            };
            if let Err(error) = ended {
                return self.end(&error, waiting);
            }
        }
    }

    /// A call that waits for one of these.
    fn awaited(&self) -> Option<mpsc::UnboundedSender<(usize, PublishEvent)>> {
        let mut jobs = self.entries.iter().map(|entry| &entry.job).chain(&self.backlog);
        jobs.find(|job| !job.call.is_closed()).map(|job| job.call.clone())
    }

    fn note_oldest(&self) {
        let since = |entry: &Entry| entry.sent.since(Monotonic::default()).as_millis() as u64;
        self.oldest.store(self.entries.front().map_or(NONE, since), Ordering::Relaxed);
    }

    /// Publishes the messages that have room in the windows, in order. A message that fails here was not sent.
    fn publish(&mut self) -> Result<(), lapin::Error> {
        let silent = self.entries.front().filter(|_| self.behind >= BEHIND_MAX);
        let silent = silent.map(|entry| entry.job.message.destination);
        let mut waiting = mem::take(&mut self.backlog);
        while let Some(job) = waiting.pop_front() {
            let destination = job.message.destination;
            let under_way = self.under_way.get(&destination).copied().unwrap_or_default();
            if job.call.is_closed() {
                // Its call is over and has reported it as not sent.
                self.unanswered.fetch_sub(1, Ordering::Relaxed);
            } else if silent.is_some_and(|silent| silent != destination) {
                self.unanswered.fetch_sub(1, Ordering::Relaxed);
                job.notify(PublishEvent::Again);
            } else if self.entries.len() >= WINDOW_OF_ALL || under_way >= WINDOW {
                self.backlog.push_back(job);
            } else if let Err(error) = self.publish_one(job) {
                self.backlog.append(&mut waiting);
                return Err(error);
            }
        }
        Ok(())
    }

    fn publish_one(&mut self, job: Job) -> Result<(), lapin::Error> {
        let entry = self.shared.publish(job, &self.channel);
        self.add(entry)
    }

    fn add(&mut self, mut entry: Entry) -> Result<(), lapin::Error> {
        match (&mut entry.answer).now_or_never() {
            Some(Err(error)) => {
                entry.job.notify(PublishEvent::Again);
                return Err(error);
            }
            // A quick broker has confirmed it already. It is judged with the others: what was returned may have come with it.
            Some(answer) => entry.answer = ready(answer).boxed(),
            None => {}
        }
        *self.under_way.entry(entry.job.message.destination).or_default() += 1;
        entry.job.notify(PublishEvent::Sent);
        self.entries.push_back(entry);
        Ok(())
    }

    /// The entries that have an answer.
    ///
    /// The client hands what the broker gave back to whichever message is confirmed next, which is never later than the
    /// confirmation of the message itself. So an answer counts when all the others were looked at after it.
    fn ripe(&mut self, cx: &mut Context<'_>) -> Poll<Vec<(usize, ConfirmResult)>> {
        let mut ripe: Vec<(usize, ConfirmResult)> = Vec::new();
        let mut is_ripe = vec![false; self.entries.len()];
        loop {
            let before = ripe.len();
            for (index, entry) in self.entries.iter_mut().enumerate().filter(|(index, _)| !is_ripe[*index]) {
                if let Poll::Ready(answer) = Pin::new(&mut entry.answer).poll(cx) {
                    ripe.push((index, answer));
                }
            }
            if ripe.len() == before {
                return if ripe.is_empty() { Poll::Pending } else { Poll::Ready(ripe) };
            }
            ripe[before..].iter().for_each(|(index, _)| is_ripe[*index] = true);
        }
    }

    /// Reports answers to the calls. Returns the error that closed the channel, if one did.
    fn settle(&mut self, ripe: Vec<(usize, ConfirmResult)>) -> Result<(), lapin::Error> {
        let (mut confirmed, mut returned, mut end) = (Vec::new(), Vec::new(), None);
        for (index, answer) in ripe {
            match answer {
                Ok(Confirmation::Ack(message)) => {
                    returned.extend(message);
                    confirmed.push((index, Ok(CONFIRMED.to_owned())));
                }
                Ok(Confirmation::Nack(message)) => {
                    returned.extend(message);
                    confirmed.push((index, Err(rejected())));
                }
                Ok(Confirmation::NotRequested) => {
                    confirmed.push((index, Err(SinkError::unknown("the channel does not confirm"))));
                }
                Err(error) => {
                    end.get_or_insert(error);
                }
            }
        }
        self.note_returned(returned);
        let mut done = HashSet::with_capacity(confirmed.len());
        for (index, outcome) in confirmed {
            let entry = &self.entries[index];
            if entry.returned.is_none() && outcome.is_ok() {
                remember(&mut self.destinations, &entry.job.message);
            }
            let returned = entry.returned.clone().map(PublishEvent::Returned);
            entry.job.notify(returned.unwrap_or(PublishEvent::Done(outcome)));
            done.insert(index);
        }
        self.unanswered.fetch_sub(done.len(), Ordering::Relaxed);
        self.behind = if done.contains(&0) { 0 } else { self.behind + done.len() };
        self.is_behind.store(self.behind >= BEHIND_MAX, Ordering::Relaxed);
        let now = self.shared.clock.now().mono();
        for (index, entry) in mem::take(&mut self.entries).into_iter().enumerate() {
            if done.contains(&index) {
                self.leave(entry.job.message.destination);
                entry.slot.answered(now);
            } else {
                self.entries.push_back(entry);
            }
        }
        end.map_or(Ok(()), Err)
    }

    fn leave(&mut self, destination: u64) {
        if let Some(count) = self.under_way.get_mut(&destination) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&destination);
            }
        }
    }

    /// Notes what was returned with the messages that it belongs to: of two with one id, the earlier.
    fn note_returned(&mut self, returned: Vec<BasicReturnMessage>) {
        if returned.is_empty() {
            return;
        }
        let mut words: HashMap<String, VecDeque<String>> = HashMap::new();
        for message in returned {
            let id = message.delivery.properties.message_id().as_ref().map(ToString::to_string);
            let reason = format!("{} {}: no queue is bound for it", message.reply_code, message.reply_text);
            words.entry(id.unwrap_or_default()).or_default().push_back(reason);
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.returned.is_none()) {
            entry.returned = words.get_mut(entry.job.message.id()).and_then(VecDeque::pop_front);
        }
    }

    /// The channel was closed: reports the outcome of each unconfirmed message.
    fn end(self, error: &lapin::Error, mut waiting: mpsc::UnboundedReceiver<Job>) {
        waiting.close();
        let cause = Cause::of(error);
        self.shared.trust.ended(&cause);
        let under: Vec<Unconfirmed<'_>> = self
            .entries
            .iter()
            .map(|entry| Unconfirmed {
                message: &entry.job.message,
                returned: entry.returned.as_deref(),
                is_known: self.destinations.contains(&entry.job.message.destination),
            })
            .collect();
        for (entry, event) in self.entries.iter().zip(judge(&cause, error, &under)) {
            entry.job.notify(event);
        }
        self.backlog.iter().for_each(|job| job.notify(PublishEvent::Again));
        while let Ok(job) = waiting.try_recv() {
            job.notify(PublishEvent::Again);
        }
    }
}

/// Returns when a call is over.
async fn over(call: Option<mpsc::UnboundedSender<(usize, PublishEvent)>>) {
    match call {
        Some(call) => call.closed().await,
        None => std::future::pending().await,
    }
}

fn remember(destinations: &mut HashSet<u64>, message: &OutgoingMessage) {
    if destinations.len() >= DESTINATIONS_MAX {
        destinations.clear();
    }
    destinations.insert(message.destination);
}

#[cfg(test)]
mod tests {
    use duly::ManualClock;
    use duly_core::{Delivery, StoredMessage, Timestamp};
    use lapin::{Connection, ConnectionProperties};
    use testkit::servers::rabbitmq::unconfirming_broker;

    use super::*;
    use crate::rabbitmq::{RabbitmqConfig, settings::Settings};

    #[tokio::test]
    async fn a_confirm_that_comes_before_it_is_awaited_counts() {
        let url = format!("amqp://127.0.0.1:{}", unconfirming_broker().await);
        let settings = toml::from_str::<RabbitmqConfig>(&format!("url = '{url}'")).unwrap();
        let settings = Settings::read(&settings).unwrap();
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let clock = Arc::new(ManualClock::new());
        let shared = ConnectionContext { clock, trust: Arc::default(), confirm_pace: Arc::default() };
        let (id, sink, topic) = ("a".parse().unwrap(), "events".parse().unwrap(), "orders".parse().unwrap());
        let delivery = Delivery::new(StoredMessage::new(id, sink, topic, Timestamp::from_millis(1)), 1);
        let (call, mut events) = mpsc::unbounded_channel();
        let message = Arc::new(OutgoingMessage::of(&delivery, &settings).unwrap());
        let job = Job { position: 0, message, call };
        let mut task = Task::new(channel, None, shared.clone());
        task.add(shared.entry(job, ready(Ok(Confirmation::Ack(None))).boxed())).unwrap();
        let ripe = poll_fn(|cx| task.ripe(cx)).await;
        task.settle(ripe).unwrap();
        assert!(matches!(events.recv().await, Some((0, PublishEvent::Sent))));
        assert!(matches!(events.recv().await, Some((0, PublishEvent::Done(Ok(_))))));
    }
}
