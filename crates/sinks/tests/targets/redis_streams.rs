//! The far end of Redis Streams: real servers, and a reader.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use duly::SystemClock;
use duly_core::{MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use redis::streams::StreamRangeReply;
use testkit::{
    servers::redis::{Cluster, Redis, Sentinels},
    sink::{Arrival, CannotShow, Target},
};

/// Redis in one of its forms; what it has is read from `reader`'s servers.
pub(crate) struct Streams<S> {
    servers: S,
    url: String,
    column: &'static str,
    /// Whether a server is to hang as soon as a sink is connected.
    is_slow: AtomicBool,
}

impl<S> Streams<S> {
    fn new(servers: S, url: String, column: &'static str) -> Self {
        Self { servers, url, column, is_slow: AtomicBool::new(false) }
    }
}

/// One Redis.
pub(crate) fn single() -> Streams<Redis> {
    let redis = Redis::single();
    let url = redis.url();
    Streams::new(redis, url, "one server")
}

/// A cluster of three.
pub(crate) fn cluster() -> Streams<Cluster> {
    let cluster = Cluster::of_three();
    let url = cluster.url();
    Streams::new(cluster, url, "cluster")
}

/// A master, a replica and three sentinels, which do not mind a master that is away for as long as a case takes.
pub(crate) fn sentinels() -> Streams<Sentinels> {
    let sentinels = Sentinels::with_patience(Duration::from_secs(60));
    let url = sentinels.url();
    Streams::new(sentinels, url, "sentinels")
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
    /// A stream that another server has than [`TOPIC`].
    fn elsewhere(&self) -> Option<String> {
        None
    }
}

/// The stream of good messages.
const TOPIC: &str = "topic";

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
    fn elsewhere(&self) -> Option<String> {
        // Nor the first: it is asked who has a stream, and must not hang.
        let others = [0, self.owner(self.slot(TOPIC))];
        let is_other_server = |name: &String| !others.contains(&self.owner(self.slot(name)));
        (0..).map(|n| format!("s{n}")).find(is_other_server)
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

impl<S: Servers> Streams<S> {
    fn entries(&self, topic: &str) -> Vec<Arrival> {
        let entries: StreamRangeReply = self.servers.of(topic).run(&["XRANGE", topic, "-", "+"]);
        let fields = |entry: &redis::streams::StreamId| {
            let pair = |(name, value): (&String, &redis::Value)| {
                (name.clone(), redis::from_redis_value::<Vec<u8>>(value.clone()).unwrap().into())
            };
            entry.map.iter().map(pair).collect()
        };
        entries.ids.iter().map(|entry| arrival(topic, fields(entry))).collect()
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
        let is_slow = self.is_slow.load(Ordering::SeqCst);
        // What is slow comes in the end, however slow the machine.
        let timeout = if is_slow { 60 } else { 7 };
        let config = format!("kind = 'redis_streams'\nurl = '{}'\nrequest_timeout = '{timeout}s'", self.url);
        let config: SinkConfig = toml::from_str(&config).unwrap();
        let sink = config.build(Arc::new(SystemClock::new().unwrap())).unwrap();
        if let Some(stream) = self.servers.elsewhere().filter(|_| is_slow) {
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(sink.probe())).unwrap();
            for redis in self.servers.all() {
                redis.run::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
            }
            self.servers.of(&stream).pause();
        }
        sink
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("redis_streams", self.column), state)
    }

    /// The server of the stream hangs.
    async fn slow(&self, id: MessageId) -> Option<StoredMessage> {
        let stream = self.servers.elsewhere()?;
        self.is_slow.store(true, Ordering::SeqCst);
        Some(StoredMessage { topic: stream.parse().unwrap(), ..self.good(id) })
    }

    async fn release(&self) {
        self.servers.of(&self.servers.elsewhere().unwrap()).cont();
        self.is_slow.store(false, Ordering::SeqCst);
    }

    async fn silent(&self, id: MessageId) -> Option<StoredMessage> {
        self.slow(id).await
    }

    /// Something else has the name.
    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        self.servers.of("text").run::<()>(&["SET", "text", "x"]);
        Some(StoredMessage { topic: "text".parse().unwrap(), ..self.good(id) })
    }

    /// The server of the stream is out of memory.
    async fn full(&self, id: MessageId) -> Option<StoredMessage> {
        let stream = self.servers.elsewhere()?;
        self.servers.of(&stream).run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        Some(StoredMessage { topic: stream.parse().unwrap(), ..self.good(id) })
    }

    /// An entry has a body already.
    fn bad(&self, id: MessageId) -> StoredMessage {
        let mut message = self.good(id);
        message.properties.put("body", "x");
        message
    }

    async fn arrived(&self) -> Vec<Arrival> {
        // A server that hangs cannot be read.
        let elsewhere = self.servers.elsewhere().filter(|_| !self.is_slow.load(Ordering::SeqCst));
        let topics = [Some(TOPIC.to_owned()), elsewhere].into_iter().flatten();
        topics.flat_map(|topic| self.entries(&topic)).collect()
    }

    async fn stop(&self) {
        self.servers.all().iter().for_each(|redis| redis.kill());
    }

    async fn start(&self) {
        self.servers.all().iter().for_each(|redis| redis.start());
        self.servers.wait();
    }
}
