//! An open connection and its channels.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use duly_core::{Clock, SinkError};
use futures_util::StreamExt;
use lapin::{Channel, Connection, ErrorKind, Event, PublisherConfirm, options::ConfirmSelectOptions};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::{
    confirm_pace::ConfirmPace,
    publisher::{ConnectionContext, Job, Publisher},
    trust::Trust,
};

/// Channels that all calls share, at most. A destination uses eight of them, chosen by its hash: what blocks those leaves the
/// others alone.
const SHARED: usize = 16;
/// More than those, while all of them wait for confirms of silent queues; the broker allows 2,047 to a connection.
const SHARED_MAX: usize = 128;
const CHOICES: usize = 8;
/// If no channel is free, one is waited for so long: those of single messages and questions close soon.
pub(super) const FREE_CHANNEL_WAIT: Duration = Duration::from_secs(1);
const FREE_CHANNEL_CHECK: Duration = Duration::from_millis(20);
/// Questions about queues that are open at the same time, each on a channel of its own.
const QUESTIONS_MAX: usize = 8;

/// An open connection.
#[derive(Clone)]
pub(super) struct BrokerConnection(Arc<Inner>);

struct Inner {
    connection: Connection,
    /// Those after the first `shared_min` are there only while they are needed.
    shared: Mutex<Vec<Option<Publisher>>>,
    /// [`SHARED`] and [`SHARED_MAX`], unless the broker allows fewer channels: half of them are left for single messages and questions.
    shared_min: usize,
    shared_max: usize,
    common: ConnectionContext,
    /// Why the broker takes no messages now, if so.
    blocked: watch::Receiver<Option<String>>,
    /// The last error that closed a channel.
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
        let common = ConnectionContext { clock, trust: Arc::default(), confirm_pace: Arc::default() };
        let half = usize::from(connection.configuration().channel_max() / 2).max(1);
        let (shared_min, shared_max) = (SHARED.min(half), SHARED_MAX.min(half));
        let shared = Mutex::new(vec![None; shared_min]);
        let questions = Semaphore::new(QUESTIONS_MAX);
        Self(Arc::new(Inner {
            connection,
            shared,
            shared_min,
            shared_max,
            common,
            blocked,
            errors,
            questions,
        }))
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
        self.channel_within(FREE_CHANNEL_WAIT).await
    }

    async fn channel_within(&self, wait: Duration) -> Result<Channel, SinkError> {
        let failed = |error: lapin::Error| match is_limit(&error) {
            // The connection stands, and other destinations have their channels.
            true => SinkError::unreachable(error.to_string()).at_destination(),
            false => SinkError::unreachable(error.to_string()),
        };
        let channel = self.plain_channel_within(wait).await.map_err(failed)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(failed)?;
        Ok(channel)
    }

    /// A new channel, waited for if the connection has as many as the broker allows.
    pub(super) async fn plain_channel(&self) -> lapin::Result<Channel> {
        self.plain_channel_within(FREE_CHANNEL_WAIT).await
    }

    async fn plain_channel_within(&self, wait: Duration) -> lapin::Result<Channel> {
        let end = self.clock().now().mono().saturating_add(wait);
        loop {
            let opened = self.0.connection.create_channel().await;
            let now = self.clock().now().mono();
            if now >= end || !opened.as_ref().is_err_and(is_limit) {
                return opened;
            }
            self.clock().sleep_until(now.saturating_add(FREE_CHANNEL_CHECK)).await;
        }
    }

    /// The permit to query the broker on a channel of its own.
    pub(super) async fn question(&self) -> Option<SemaphorePermit<'_>> {
        self.0.questions.acquire().await.ok()
    }

    /// Receives the errors that close channels from now on.
    pub(super) fn channel_errors(&self) -> watch::Receiver<Option<lapin::Error>> {
        let mut errors = self.0.errors.clone();
        errors.mark_unchanged();
        errors
    }

    /// Whether the broker answers at all, whatever became of a message. If no channel is free to ask by, heartbeats tell.
    pub(super) async fn is_alive(&self) -> bool {
        match self.0.connection.create_channel().await {
            Ok(_) => true,
            Err(error) => is_limit(&error) && self.is_connected(),
        }
    }

    /// The channel for a message to `destination`, opened if necessary. If none is free, one is waited for so long.
    pub(super) async fn publisher(&self, destination: u64, wait: Duration) -> Result<Publisher, SinkError> {
        let slot = match self.choose(destination) {
            Ok(publisher) => return Ok(publisher),
            Err(slot) => slot,
        };
        let publisher = Publisher::start(self.channel_within(wait).await?, None, self.0.common.clone());
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

    /// Puts the publisher into the slot, or returns the one that was put there meanwhile.
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

    /// The least busy of the destination's channels; another channel if all of these wait for confirms of other destinations. An error is the
    /// slot for a new channel.
    fn choose(&self, destination: u64) -> Result<Publisher, usize> {
        let now = self.0.common.clock.now().mono();
        let Inner { shared_min, shared_max, .. } = *self.0;
        let begin = usize::try_from(destination % shared_min as u64).unwrap_or_default();
        // A silent destination keeps its channel: elsewhere it would block more.
        let is_silent = self.0.common.confirm_pace.is_overdue(destination, now);
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in shared.iter_mut() {
            slot.take_if(|publisher| publisher.is_closed() || publisher.is_stale(now));
        }
        while shared.len() > shared_min && shared.last().is_some_and(Option::is_none) {
            shared.pop();
        }
        let busy = |slot: &usize| shared[*slot].as_ref().map_or(0, Publisher::unanswered);
        let is_overdue = |slot: &usize| shared[*slot].as_ref().is_some_and(|one| one.is_overdue(now));
        let fits = |slot: &usize| !is_overdue(slot);
        let places = (0..shared_min).map(|n| (begin + n) % shared_min);
        let own = places.clone().take(CHOICES);
        let best = match is_silent {
            true => own.clone().find(is_overdue).or(Some(begin)),
            false => own.filter(fits).min_by_key(busy),
        };
        let found = best.or_else(|| places.chain(shared_min..shared.len()).filter(fits).min_by_key(busy));
        let slot = match found {
            Some(slot) => slot,
            None if shared.len() < shared_max => return Err(shared.len()),
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

/// Whether the connection has as many channels as the broker allows.
fn is_limit(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ChannelsLimitReached)
}
