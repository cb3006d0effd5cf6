//! Subscriptions to the events of expired keys, on every server that holds keys, for as long as it does.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt};
use redis::{
    AsyncConnectionConfig, RedisResult,
    aio::{PubSubSink, PubSubStream},
};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    masters::{Masters, Server},
    notify,
};
use crate::{Error, clock};

/// How long a subscription may take to come about.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked whether the server is still there, and which servers there are.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Waits after failures: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// An event that has waited for longer is not acted on: others may have forgotten by then that they did.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(20);

/// Events of expired keys may have been missed: between the end of a subscription and the beginning of the next, nobody keeps them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Gap {
    /// Which server tells of its expired keys again.
    pub server: String,
    /// What had happened.
    pub why: String,
}

/// Who wants to hear.
pub(super) trait Hear: Send + Sync + 'static {
    /// A key expired. An error means that this subscription can no longer be relied on: there will be another.
    fn heard(
        &self,
        key: &[u8],
        subscription: &Subscription,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Some may have been missed.
    fn missed(&self, gap: Gap);
}

/// One subscription, from its beginning to its end.
pub(super) struct Subscription {
    /// No other has it.
    pub(super) id: u64,
    /// Microseconds of the server's clock, just before it began.
    pub(super) began_us: u64,
    /// The number of the event that is heard.
    pub(super) number: u64,
}

/// What is done about the setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    /// Added if missing.
    Ensure,
    /// Left alone.
    Assume,
}

struct Open {
    subscription: Subscription,
    sink: PubSubSink,
    stream: PubSubStream,
}

impl Server {
    async fn open(&self, setting: Setting) -> Result<Open, Error> {
        let opening = tokio::time::timeout(OPEN_WITHIN, self.subscribe(setting)).await;
        opening.unwrap_or_else(|_| Err(Error::unreachable(format!("{} does not answer", self.name))))
    }

    async fn subscribe(&self, setting: Setting) -> Result<Open, Error> {
        let unconnected = |error| Error::unconnected(&error);
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(OPEN_WITHIN));
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.map_err(unconnected)?;
        if setting == Setting::Ensure {
            notify::ensure(&self.name, &mut connection).await?;
        }
        let (mut sink, stream) = self.client.get_async_pubsub().await.map_err(unconnected)?.split();
        // Before the subscription: what is acted on in between is then taken for heard, and not for another occurrence.
        let time: RedisResult<(u64, u64)> = redis::cmd("TIME").query_async(&mut connection).await;
        let (seconds, micros) = time.map_err(unconnected)?;
        let database = self.client.get_connection_info().redis_settings().db();
        sink.subscribe(format!("__keyevent@{database}__:expired")).await.map_err(unconnected)?;
        let subscription =
            Subscription { id: clock::draw(), began_us: seconds * 1_000_000 + micros, number: 0 };
        Ok(Open { subscription, sink, stream })
    }
}

/// Hears from one server until it is told to stop, with one subscription after another.
async fn keep<H: Hear>(
    server: Server,
    setting: Setting,
    hear: Arc<H>,
    mut first: Option<Open>,
    mut stop: watch::Receiver<bool>,
) {
    let mut why = "another server holds these keys now".to_owned();
    let mut wait = BACKOFF.0;
    while !*stop.borrow() {
        let opened = match first.take() {
            Some(open) => Ok(open),
            None => server.open(setting).await.inspect(|_| {
                hear.missed(Gap { server: server.name.clone(), why: why.clone() });
            }),
        };
        match opened {
            Ok(open) => {
                wait = BACKOFF.0;
                let Err(broken) = listen(open, &*hear, &mut stop).await else { return };
                tracing::warn!(server = server.name, error = %broken, "subscription lost, subscribing again");
                why = broken;
            }
            Err(error) => {
                tracing::warn!(server = server.name, %error, "subscribe failed");
                tokio::select! {
                    () = clock::sleep(wait) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
                wait = (wait * 2).min(BACKOFF.1);
            }
        }
    }
}

/// Hands on event after event, until it is told to stop, or says why it cannot go on.
async fn listen<H: Hear>(open: Open, hear: &H, stop: &mut watch::Receiver<bool>) -> Result<(), String> {
    let Open { mut subscription, mut sink, mut stream } = open;
    // When there was nothing to be read. What is read long after that may be old.
    let mut idle = clock::instant();
    while !*stop.borrow() {
        let message = match stream.next().now_or_never() {
            Some(message) => Some(message),
            None => {
                check_fresh(idle)?;
                idle = clock::instant();
                tokio::select! {
                    message = stream.next() => Some(message),
                    () = clock::sleep(LOOK_EVERY) => None,
                    _ = stop.wait_for(|stop| *stop) => return Ok(()),
                }
            }
        };
        check_fresh(idle)?;
        match message {
            Some(Some(message)) => {
                subscription.number += 1;
                hear.heard(message.get_payload_bytes(), &subscription).await?;
            }
            Some(None) => return Err("the connection was closed".into()),
            None => {
                let alive = tokio::time::timeout(OPEN_WITHIN, sink.ping::<redis::Value>()).await;
                alive.map_err(|_| "it does not answer")?.map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Neither busy nor paused for so long that what is read now may be old.
fn check_fresh(idle: Instant) -> Result<(), String> {
    if clock::instant().saturating_duration_since(idle) > STALE_AFTER {
        return Err(format!("this process was paused or busy for more than {STALE_AFTER:?}"));
    }
    Ok(())
}

/// Hears from every server; new ones are joined, and those that hold no keys any more are left.
pub(super) struct Hearing<H> {
    masters: Masters,
    setting: Setting,
    hear: Arc<H>,
    servers: BTreeMap<String, (watch::Sender<bool>, JoinHandle<()>)>,
}

impl<H: Hear> Hearing<H> {
    pub(super) fn new(masters: Masters, setting: Setting, hear: Arc<H>) -> Self {
        Self { masters, setting, hear, servers: BTreeMap::new() }
    }

    /// From here on nothing is missed; or why that cannot be.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        for server in self.masters.find().await.map_err(|error| Error::unconnected(&error))? {
            let open = server.open(self.setting).await?;
            self.join(server, Some(open));
        }
        Ok(())
    }

    fn join(&mut self, server: Server, first: Option<Open>) {
        let (stop, told) = watch::channel(false);
        let name = server.name.clone();
        let task = tokio::spawn(keep(server, self.setting, self.hear.clone(), first, told));
        self.servers.insert(name, (stop, task));
    }

    /// Until it is told to stop.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = clock::sleep(LOOK_EVERY) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
            if self.masters.may_change() || self.servers.is_empty() {
                match self.masters.find().await {
                    Ok(found) => self.follow(found),
                    Err(error) => tracing::debug!(%error, "server discovery failed"),
                }
            }
        }
        for (stop, _) in self.servers.values() {
            stop.send_replace(true);
        }
        for (_, task) in self.servers.into_values() {
            let _ = task.await;
        }
    }

    fn follow(&mut self, found: Vec<Server>) {
        self.servers.retain(|name, (stop, _)| {
            let stays = found.iter().any(|server| server.name == *name);
            if !stays {
                tracing::info!(server = name, "server left");
                stop.send_replace(true);
            }
            stays
        });
        for server in found {
            if !self.servers.contains_key(&server.name) {
                tracing::info!(server = server.name, "server joined");
                self.join(server, None);
            }
        }
    }
}
