//! Subscriptions to expiry events, one per server that holds keys.

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

/// How long a subscription may take to be established.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the connection and the list of servers are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Waits after a failed subscribe: the first and the longest.
const SUBSCRIBE_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// An older event is not acted on: other processes may have forgotten by then that they acted on it.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(20);

/// Expiry events may have been missed: Redis keeps none between the end of one subscription and the start of the next.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EventGap {
    /// The server whose events are received again.
    pub server: String,
    /// Why the subscription ended.
    pub why: String,
}

/// Receives expiry events.
pub(super) trait ExpiryEvents: Send + Sync + 'static {
    /// A key expired. An error ends this subscription, and another one is started.
    fn on_expired(
        &self,
        key: &[u8],
        subscription: &Subscription,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Events may have been missed.
    fn on_gap(&self, gap: EventGap);
}

/// One subscription.
pub(super) struct Subscription {
    /// Unique.
    pub(super) id: u64,
    /// The server's time in microseconds, just before the subscription.
    pub(super) began_us: u64,
    /// The number of the current event.
    pub(super) number: u64,
}

/// What to do about `notify-keyspace-events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotifySetting {
    /// Add the missing flags.
    Ensure,
    /// Leave it unchanged.
    Assume,
}

struct OpenSubscription {
    subscription: Subscription,
    sink: PubSubSink,
    stream: PubSubStream,
}

impl Server {
    async fn open(&self, setting: NotifySetting) -> Result<OpenSubscription, Error> {
        let opening = tokio::time::timeout(OPEN_TIMEOUT, self.subscribe(setting)).await;
        opening.unwrap_or_else(|_| Err(Error::unreachable(format!("{} does not answer", self.name))))
    }

    async fn subscribe(&self, setting: NotifySetting) -> Result<OpenSubscription, Error> {
        let on_connect = |error| Error::on_connect(&error);
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(OPEN_TIMEOUT));
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.map_err(on_connect)?;
        if setting == NotifySetting::Ensure {
            notify::ensure(&self.name, &mut connection).await?;
        }
        let (mut sink, stream) = self.client.get_async_pubsub().await.map_err(on_connect)?.split();
        // Read before the subscription: an event that others act on in between counts as received, not as another
        // occurrence.
        let time: RedisResult<(u64, u64)> = redis::cmd("TIME").query_async(&mut connection).await;
        let (seconds, micros) = time.map_err(on_connect)?;
        let database = self.client.get_connection_info().redis_settings().db();
        sink.subscribe(format!("__keyevent@{database}__:expired")).await.map_err(on_connect)?;
        let subscription =
            Subscription { id: clock::random_u64(), began_us: seconds * 1_000_000 + micros, number: 0 };
        Ok(OpenSubscription { subscription, sink, stream })
    }
}

/// Receives the events of one server until it is asked to stop, with one subscription after another.
async fn follow_server<H: ExpiryEvents>(
    server: Server,
    setting: NotifySetting,
    events: Arc<H>,
    mut first: Option<OpenSubscription>,
    mut stop: watch::Receiver<bool>,
) {
    let mut why = "another server holds these keys now".to_owned();
    let mut wait = SUBSCRIBE_BACKOFF.0;
    while !*stop.borrow() {
        let opened = match first.take() {
            Some(open) => Ok(open),
            None => server.open(setting).await.inspect(|_| {
                events.on_gap(EventGap { server: server.name.clone(), why: why.clone() });
            }),
        };
        match opened {
            Ok(open) => {
                wait = SUBSCRIBE_BACKOFF.0;
                let Err(broken) = read_events(open, &*events, &mut stop).await else { return };
                tracing::warn!(server = server.name, error = %broken, "subscription lost, subscribing again");
                why = broken;
            }
            Err(error) => {
                tracing::warn!(server = server.name, %error, "subscribe failed");
                tokio::select! {
                    () = clock::sleep(wait) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
                wait = (wait * 2).min(SUBSCRIBE_BACKOFF.1);
            }
        }
    }
}

/// Passes events on until it is asked to stop. Returns why it cannot continue.
async fn read_events<H: ExpiryEvents>(
    open: OpenSubscription,
    events: &H,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), String> {
    let OpenSubscription { mut subscription, mut sink, mut stream } = open;
    // When the connection last had nothing to read. A message read long after that may be old.
    let mut idle = clock::instant();
    while !*stop.borrow() {
        let message = match stream.next().now_or_never() {
            Some(message) => Some(message),
            None => {
                check_fresh(idle)?;
                idle = clock::instant();
                tokio::select! {
                    message = stream.next() => Some(message),
                    () = clock::sleep(CHECK_INTERVAL) => None,
                    _ = stop.wait_for(|stop| *stop) => return Ok(()),
                }
            }
        };
        check_fresh(idle)?;
        match message {
            Some(Some(message)) => {
                subscription.number += 1;
                events.on_expired(message.get_payload_bytes(), &subscription).await?;
            }
            Some(None) => return Err("the connection was closed".into()),
            None => {
                let alive = tokio::time::timeout(OPEN_TIMEOUT, sink.ping::<redis::Value>()).await;
                alive.map_err(|_| "it does not answer")?.map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Fails if this process was busy or paused for so long that the next message may be old.
fn check_fresh(idle: Instant) -> Result<(), String> {
    if clock::instant().saturating_duration_since(idle) > STALE_AFTER {
        return Err(format!("this process was paused or busy for more than {STALE_AFTER:?}"));
    }
    Ok(())
}

/// Receives the events of all servers. It follows servers that join and leave.
pub(super) struct Subscriber<H> {
    masters: Masters,
    setting: NotifySetting,
    events: Arc<H>,
    servers: BTreeMap<String, (watch::Sender<bool>, JoinHandle<()>)>,
}

impl<H: ExpiryEvents> Subscriber<H> {
    pub(super) fn new(masters: Masters, setting: NotifySetting, events: Arc<H>) -> Self {
        Self { masters, setting, events, servers: BTreeMap::new() }
    }

    /// Subscribes on all servers. After it returns, no event is missed.
    pub(super) async fn subscribe_all(&mut self) -> Result<(), Error> {
        for server in self.masters.find().await.map_err(|error| Error::on_connect(&error))? {
            let open = server.open(self.setting).await?;
            self.add_server(server, Some(open));
        }
        Ok(())
    }

    fn add_server(&mut self, server: Server, first: Option<OpenSubscription>) {
        let (stop_tx, stop_rx) = watch::channel(false);
        let name = server.name.clone();
        let task = tokio::spawn(follow_server(server, self.setting, self.events.clone(), first, stop_rx));
        self.servers.insert(name, (stop_tx, task));
    }

    /// Runs until it is asked to stop.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = clock::sleep(CHECK_INTERVAL) => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
            if self.masters.may_change() || self.servers.is_empty() {
                match self.masters.find().await {
                    Ok(found) => self.update_servers(found),
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

    fn update_servers(&mut self, found: Vec<Server>) {
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
                self.add_server(server, None);
            }
        }
    }
}
