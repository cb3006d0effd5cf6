//! The far end of Redis Streams: real servers, and a reader.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use duly::SystemClock;
use duly_core::{Message, MessageId, Sink, Timestamp};
use duly_sinks::SinkConfig;
use redis::streams::StreamRangeReply;
use testkit::{
    servers::redis::{Cluster, Redis, Sentinels},
    sink::{Arrival, Target},
};

/// Redis in one of its forms; what it has is read from `reader`'s servers.
pub(crate) struct Streams<S> {
    servers: S,
    url: String,
}

/// One Redis.
pub(crate) fn single() -> Streams<Redis> {
    let redis = Redis::single();
    Streams { url: redis.url(), servers: redis }
}

/// A cluster of three.
pub(crate) fn cluster() -> Streams<Cluster> {
    let cluster = Cluster::of_three();
    Streams { url: cluster.url(), servers: cluster }
}

/// A master, a replica and three sentinels, which do not mind a master that is away for as long as a case takes.
pub(crate) fn sentinels() -> Streams<Sentinels> {
    let sentinels = Sentinels::with_patience(Duration::from_secs(60));
    Streams { url: sentinels.url(), servers: sentinels }
}

fn node_of<'a>(cluster: &'a Cluster, key: &str) -> &'a Redis {
    &cluster.nodes()[cluster.owner(cluster.slot(key))]
}

/// What a form of Redis can do besides.
pub(crate) trait Servers: Send + Sync {
    /// The server that has this key.
    fn of(&self, key: &str) -> &Redis;
    /// Those that are killed together.
    fn all(&self) -> Vec<&Redis>;
    /// After a start.
    fn wait(&self) {}
}

impl Servers for Redis {
    fn of(&self, _: &str) -> &Redis {
        self
    }
    fn all(&self) -> Vec<&Redis> {
        vec![self]
    }
}

impl Servers for Cluster {
    fn of(&self, key: &str) -> &Redis {
        node_of(self, key)
    }
    fn all(&self) -> Vec<&Redis> {
        self.nodes().iter().collect()
    }
    fn wait(&self) {
        self.wait_until_ok();
    }
}

impl Servers for Sentinels {
    fn of(&self, _: &str) -> &Redis {
        &self.pair()[self.master()]
    }
    /// The master alone.
    fn all(&self) -> Vec<&Redis> {
        vec![&self.pair()[self.master()]]
    }
}

fn arrival(topic: &str, fields: BTreeMap<String, Bytes>) -> Arrival {
    let get = |name: &str| fields.get(name).map(|value| String::from_utf8(value.to_vec()).unwrap());
    let text = |name: &str| get(name).unwrap();
    Arrival {
        id: text("duly-id").parse().unwrap(),
        due: Timestamp::from_millis(text("duly-due").parse().unwrap()),
        attempt: text("duly-attempt").parse().unwrap(),
        topic: topic.into(),
        tag: get("duly-tag"),
        key: get("duly-key"),
        content_type: text("content-type"),
        body: fields["body"].clone(),
        properties: fields
            .iter()
            .filter(|(name, _)| *name != "body")
            .map(|(name, value)| (name.clone(), String::from_utf8(value.to_vec()).unwrap()))
            .collect(),
    }
}

#[async_trait]
impl<S: Servers> Target for Streams<S> {
    fn sink(&self) -> Arc<dyn Sink> {
        let config = format!("kind = 'redis_streams'\nurl = '{}'", self.url);
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    /// An entry has a body already.
    fn bad(&self, id: MessageId) -> Message {
        let mut message = self.good(id);
        message.properties.put("body", "x");
        message
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let topic = "topic";
        let entries: StreamRangeReply = self.servers.of(topic).run(&["XRANGE", topic, "-", "+"]);
        let fields = |entry: &redis::streams::StreamId| {
            let pair = |(name, value): (&String, &redis::Value)| {
                (name.clone(), redis::from_redis_value::<Vec<u8>>(value.clone()).unwrap().into())
            };
            entry.map.iter().map(pair).collect()
        };
        entries.ids.iter().map(|entry| arrival(topic, fields(entry))).collect()
    }

    async fn stop(&self) {
        self.servers.all().iter().for_each(|redis| redis.kill());
    }

    async fn start(&self) {
        self.servers.all().iter().for_each(|redis| redis.start());
        self.servers.wait();
    }
}
