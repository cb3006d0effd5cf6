//! Events for later: kept in Redis by Duly, appended to their streams when they are due.

use std::{sync::Arc, time::Duration};

use duly::{Clock, Duly, Message, Pace, SinkOptions, SystemClock};
use duly_sinks::{RedisStreamsConfig, SinkConfig, Span};
use duly_stores::{RedisStore, redis::Options};
use serde::Serialize;

use crate::{Error, RedisMq, Settings, Unacknowledged, settings::check_event};

pub use duly::{Changed, MessageId};

/// The lane of all events.
const SINK: &str = "streams";

/// How long a process that says nothing is taken to be there, at least and at most.
const LEASE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

/// Opens the store as one of the processes that share it, and begins to deliver.
pub(crate) async fn start(settings: &Settings, name: &str, instance: u64) -> Result<Duly, Error> {
    let url = settings.url.as_str();
    let machine = SystemClock::new().map_err(|error| duly::Error::NoThread(error.to_string()))?;
    let lease = settings.processing_timeout.clamp(LEASE.0, LEASE.1);
    let options = Options {
        prefix: settings.store.clone(),
        allow_volatile: settings.allow_volatile,
        node: name.to_owned(),
        lease,
        ..Options::new(instance)
    };
    let (store, clock) =
        RedisStore::join(url, options, Arc::new(machine)).await.map_err(duly::Error::from)?;
    let clock: Arc<dyn Clock> = Arc::new(clock);
    // A call ends before the lane's timeout, and that before the lease.
    let config = SinkConfig::RedisStreams(RedisStreamsConfig {
        url: Some(url.into()),
        // What keeps unacknowledged entries is done by listeners.
        max_len: settings.trim.max_len.filter(|_| settings.trim.unacknowledged == Unacknowledged::Drop),
        request_timeout: Some(Span(lease * 7 / 10)),
        ..RedisStreamsConfig::default()
    });
    let sink = config.build(clock.clone()).map_err(duly::Error::from)?;
    let options = SinkOptions { batch: config.batch(), timeout: lease * 8 / 10, ..SinkOptions::default() };
    let duly = Duly::builder()
        .store(Arc::new(store))
        .clock(clock)
        .lease(lease)
        .scan(pace(settings.poll_interval, lease))
        .deliver(settings.enabled)
        .sink(SINK, sink, options)
        .start()
        .await?;
    Ok(duly)
}

/// No pause is longer than the interval; and every sweep says that this process is there, so a few fit into the lease.
fn pace(interval: Duration, lease: Duration) -> Pace {
    let most = interval.min(lease / 5);
    let usual = Pace::default();
    Pace {
        initial: usual.initial.min(most),
        min: usual.min.min(most),
        max: usual.max.min(most),
        idle_max: most,
    }
}

impl RedisMq {
    /// Keeps the value in Redis and appends it to the stream that the event names once `delay` is over: never before, and
    /// once, whichever process is killed meanwhile. Answers the id to [cancel](Self::cancel) it by.
    pub async fn delay_send<T: Serialize + ?Sized>(
        &self,
        event: &str,
        value: &T,
        delay: Duration,
    ) -> Result<MessageId, Error> {
        self.check_open()?;
        check_event(event)?;
        let message = Message::to_sink(SINK, event).json(value).map_err(|why| Error::Encode(why.detail))?;
        Ok(self.inner.duly.send(message.after(delay)).await?.id)
    }

    /// Takes back what was sent for later: done, too late (with the state), or unknown.
    pub async fn cancel(&self, id: &MessageId) -> Result<Changed, Error> {
        Ok(self.inner.duly.cancel(id).await?)
    }
}
