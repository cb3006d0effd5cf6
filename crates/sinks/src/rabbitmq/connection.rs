//! An open connection and its channels.

use std::sync::{Arc, Mutex, PoisonError};

use duly_core::{Clock, SinkError};
use futures_util::StreamExt;
use lapin::{Channel, Connection, Event, PublisherConfirm, options::ConfirmSelectOptions};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::{
    confirm_pace::ConfirmPace,
    failure::no_connection,
    publisher::{Job, Publisher, Shared},
    trust::Trust,
};

/// Channels that all calls share. A destination uses eight of them, chosen by its hash: what blocks those leaves the
/// others alone.
const SHARED: usize = 16;
/// More than those, while all of them wait for confirms of silent queues; the broker allows 2,047 to a connection.
const SHARED_MAX: usize = 128;
const CHOICES: usize = 8;
/// Questions about queues that are open at the same time, each on a channel of its own.
const QUESTIONS_MAX: usize = 8;

/// An open connection.
#[derive(Clone)]
pub(super) struct BrokerConnection(Arc<Inner>);

struct Inner {
    connection: Connection,
    /// Those after the first [`SHARED`] are there only while they are needed.
    shared: Mutex<Vec<Option<Publisher>>>,
    common: Shared,
    /// Why the broker takes no messages now, if so.
    blocked: watch::Receiver<Option<String>>,
    /// What last ended a channel.
    errors: watch::Receiver<Option<lapin::Error>>,
    questions: Semaphore,
}

impl BrokerConnection {
    pub(super) fn new(connection: Connection, clock: Arc<dyn Clock>) -> Self {
        let (blocked_tx, blocked) = watch::channel(None);
        let (fail, errors) = watch::channel(None);
        let mut events = connection.events_listener();
        // Ends with the connection.
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => drop(blocked_tx.send_replace(Some(reason))),
                    Event::ConnectionUnblocked => drop(blocked_tx.send_replace(None)),
                    Event::Error(error) => drop(fail.send_replace(Some(error))),
                    _ => {}
                }
            }
        });
        let common = Shared { clock, trust: Arc::default(), confirm_pace: Arc::default() };
        let shared = Mutex::new(vec![None; SHARED]);
        let questions = Semaphore::new(QUESTIONS_MAX);
        Self(Arc::new(Inner { connection, shared, common, blocked, errors, questions }))
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.0.connection.status().connected()
    }

    pub(super) fn trust(&self) -> &Trust {
        &self.0.common.trust
    }

    pub(super) fn confirm_pace(&self) -> &ConfirmPace {
        &self.0.common.confirm_pace
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.0.common.clock
    }

    /// A new channel that confirms.
    pub(super) async fn channel(&self) -> Result<Channel, SinkError> {
        let lost = |error: lapin::Error| no_connection(error.to_string());
        let channel = self.plain_channel().await.map_err(lost)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(lost)?;
        Ok(channel)
    }

    pub(super) async fn plain_channel(&self) -> lapin::Result<Channel> {
        self.0.connection.create_channel().await
    }

    /// The right to ask the broker something on a channel of its own.
    pub(super) async fn question(&self) -> Option<SemaphorePermit<'_>> {
        self.0.questions.acquire().await.ok()
    }

    /// Says why the broker closes a channel, from now on.
    pub(super) fn channel_errors(&self) -> watch::Receiver<Option<lapin::Error>> {
        let mut errors = self.0.errors.clone();
        errors.mark_unchanged();
        errors
    }

    /// Whether the broker answers at all, whatever became of a message.
    pub(super) async fn is_alive(&self) -> bool {
        self.plain_channel().await.is_ok()
    }

    /// The channel by which a message to `destination` goes best, opened if need be.
    pub(super) async fn publisher(&self, destination: u64) -> Result<Publisher, SinkError> {
        let slot = match self.choose(destination) {
            Ok(publisher) => return Ok(publisher),
            Err(slot) => slot,
        };
        let publisher = Publisher::start(self.channel().await?, None, self.0.common.clone());
        Ok(self.share(slot, publisher))
    }

    /// Lets others use the channel on which this message is under way.
    pub(super) fn share_channel(&self, channel: Channel, job: Job, confirm: PublisherConfirm) {
        let slot = self.choose(job.message.destination);
        let first = self.0.common.sent(job, confirm);
        let publisher = Publisher::start(channel, Some(first), self.0.common.clone());
        if let Err(slot) = slot {
            self.share(slot, publisher);
        }
    }

    /// Puts it there; or gives the one that was put there meanwhile.
    fn share(&self, slot: usize, publisher: Publisher) -> Publisher {
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() <= slot {
            shared.resize(slot + 1, None);
        }
        match &shared[slot] {
            Some(other) if !other.is_closed() => other.clone(),
            _ => shared[slot].insert(publisher).clone(),
        }
    }

    /// Of its channels the one with less to do; another one, or one more, if all wait for confirms of somebody else. Or the
    /// place for a new channel.
    fn choose(&self, destination: u64) -> Result<Publisher, usize> {
        let now = self.0.common.clock.now().mono();
        let begin = usize::try_from(destination % SHARED as u64).unwrap_or_default();
        // One that waits for its own confirms stays where it is: elsewhere it would only block more.
        let is_silent = self.0.common.confirm_pace.is_overdue(destination, now);
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in shared.iter_mut() {
            slot.take_if(|publisher| publisher.is_closed() || publisher.is_stale(now));
        }
        while shared.len() > SHARED && shared.last().is_some_and(Option::is_none) {
            shared.pop();
        }
        let busy = |slot: &usize| shared[*slot].as_ref().map_or(0, Publisher::unanswered);
        let is_overdue = |slot: &usize| shared[*slot].as_ref().is_some_and(|one| one.is_overdue(now));
        let fits = |slot: &usize| !is_overdue(slot);
        let places = (0..SHARED).map(|n| (begin + n) % SHARED);
        let own = places.clone().take(CHOICES);
        let best = match is_silent {
            true => own.clone().find(is_overdue).or(Some(begin)),
            false => own.filter(fits).min_by_key(busy),
        };
        let found = best.or_else(|| places.chain(SHARED..shared.len()).filter(fits).min_by_key(busy));
        let slot = match found {
            Some(slot) => slot,
            None if shared.len() < SHARED_MAX => return Err(shared.len()),
            None => begin,
        };
        shared[slot].clone().ok_or(slot)
    }

    /// Why the broker takes no messages now, if so.
    pub(super) fn is_blocked(&self) -> Option<String> {
        self.0.blocked.borrow().clone()
    }

    /// Returns when the broker takes no more messages, with its reason; never, if the connection ends.
    pub(super) async fn blocked(&self) -> String {
        let mut blocked = self.0.blocked.clone();
        let reason = match blocked.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone(),
            Err(_) => None,
        };
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}
