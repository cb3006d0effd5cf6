//! An open connection and its channels.

use std::sync::{Arc, Mutex, PoisonError};

use duly_core::{Clock, SinkError};
use futures_util::StreamExt;
use lapin::{Channel, Connection, Event, PublisherConfirm, options::ConfirmSelectOptions};
use tokio::sync::watch;

use super::{
    failure::no_connection,
    pace::Pace,
    publisher::{Job, Publisher, Shared},
    trust::Trust,
};

/// Channels that all calls share, at most.
const SHARED_MAX: usize = 4;
/// Of those with a message that waits for its confirm for long, so many are kept beside.
const ASIDE_MAX: usize = 4;
/// A shared channel with so many unanswered messages is given up for a new one: some of them will never be answered.
const UNANSWERED_MAX: usize = 4_096;

/// An open connection.
#[derive(Clone)]
pub(super) struct Wire(Arc<Inner>);

struct Inner {
    connection: Connection,
    shared: Mutex<Vec<Publisher>>,
    common: Shared,
    /// Why the broker takes no messages now, if so.
    blocked: watch::Receiver<Option<String>>,
}

impl Wire {
    pub(super) fn new(connection: Connection, clock: Arc<dyn Clock>) -> Self {
        let (tell, blocked) = watch::channel(None);
        let mut events = connection.events_listener();
        // Ends with the connection.
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => tell.send_replace(Some(reason)),
                    Event::ConnectionUnblocked => tell.send_replace(None),
                    _ => continue,
                };
            }
        });
        let common = Shared { clock, trust: Arc::default(), pace: Arc::default() };
        Self(Arc::new(Inner { connection, shared: Mutex::default(), common, blocked }))
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

    pub(super) fn pace(&self) -> &Pace {
        &self.0.common.pace
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

    /// Whether the broker answers at all, whatever became of a message.
    pub(super) async fn is_alive(&self) -> bool {
        self.plain_channel().await.is_ok()
    }

    /// The shared channel with the least to do; a new one while there are few and all are busy.
    pub(super) async fn publisher(&self) -> Result<Publisher, SinkError> {
        match self.least_busy() {
            Some(publisher) => Ok(publisher),
            None => Ok(self.share(Publisher::start(self.channel().await?, None, self.0.common.clone()))),
        }
    }

    /// Lets others use the channel on which this message is under way.
    pub(super) fn adopt(&self, channel: Channel, job: Job, confirm: PublisherConfirm) {
        let first = self.0.common.sent(job, confirm);
        self.share(Publisher::start(channel, Some(first), self.0.common.clone()));
    }

    fn share(&self, publisher: Publisher) -> Publisher {
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() < SHARED_MAX + ASIDE_MAX {
            shared.push(publisher.clone());
        }
        publisher
    }

    /// None, if there is room for another and all that keep up have something to do.
    fn least_busy(&self) -> Option<Publisher> {
        let now = self.0.common.clock.now().mono();
        let mut shared = self.0.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|publisher| !publisher.is_closed() && publisher.unanswered() < UNANSWERED_MAX);
        let (aside, good): (Vec<_>, Vec<_>) = shared.iter().partition(|one| one.is_overdue(now));
        let least = good.iter().min_by_key(|one| one.unanswered());
        let is_room = good.len() < SHARED_MAX && shared.len() < SHARED_MAX + ASIDE_MAX;
        match least {
            Some(least) if least.unanswered() == 0 || !is_room => Some((*least).clone()),
            None if !is_room => aside.into_iter().min_by_key(|one| one.unanswered()).cloned(),
            _ => None,
        }
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
