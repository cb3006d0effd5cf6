//! Events for later: kept in Redis by Duly, appended to their streams when they are due.

use std::{sync::Arc, time::Duration};

use duly::{Clock, Duly, Message, Pace, SinkOptions, SystemClock};
use duly_sinks::{RedisStreamsConfig, SinkConfig};
use duly_stores::{RedisStore, redis::Options};
use serde::Serialize;

use crate::{Error, RedisMq, Settings, settings::check_event};

pub use duly::{Changed, MessageId};

/// The lane of all events.
const SINK: &str = "streams";

/// Opens the store and begins to deliver.
pub(crate) async fn start(url: &str, settings: &Settings, instance: u64) -> Result<Duly, Error> {
    let clock: Arc<dyn Clock> =
        Arc::new(SystemClock::new().map_err(|error| duly::Error::NoThread(error.to_string()))?);
    let options = Options {
        prefix: settings.store.clone(),
        allow_volatile: settings.allow_volatile,
        ..Options::new(instance)
    };
    let store = RedisStore::open(url, options, clock.now()).await.map_err(duly::Error::from)?;
    let config = SinkConfig::RedisStreams(RedisStreamsConfig {
        url: Some(url.into()),
        max_len: settings.max_len,
        ..RedisStreamsConfig::default()
    });
    let sink = config.build(clock.clone()).map_err(duly::Error::from)?;
    let usual = Pace::default();
    let pace = Pace {
        initial: usual.initial.min(settings.poll_interval),
        min: usual.min.min(settings.poll_interval),
        max: usual.max.min(settings.poll_interval),
        idle_max: settings.poll_interval,
    };
    let duly = Duly::builder()
        .store(Arc::new(store))
        .clock(clock)
        .scan(pace)
        .deliver(settings.enabled)
        .sink(SINK, sink, SinkOptions { batch: config.batch(), ..SinkOptions::default() })
        .start()
        .await?;
    Ok(duly)
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
