//! One Redis or a Cluster: what can run on both does.

use std::collections::HashMap;

use duly_streams::{Settings, Streams};
use testkit::servers::redis::{Cluster, Redis, installed};

/// A real Redis of either kind.
pub(crate) enum Server {
    Single(Redis),
    Cluster(Cluster),
}

impl Server {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Single(redis) => redis.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    pub(crate) async fn connect(&self, settings: Settings) -> Streams {
        Streams::connect_with(&self.url(), settings).await.unwrap()
    }

    /// The server that has a key.
    pub(crate) fn of(&self, key: &str) -> &Redis {
        match self {
            Self::Single(redis) => redis,
            Self::Cluster(cluster) => &cluster.nodes()[cluster.owner(cluster.slot(key))],
        }
    }

    /// The name of a topic's dead letters.
    pub(crate) fn dead(&self, topic: &str) -> String {
        match self {
            Self::Single(_) => format!("{topic}_dlq"),
            Self::Cluster(_) => format!("{{{topic}}}_dlq"),
        }
    }

    pub(crate) fn len(&self, stream: &str) -> usize {
        self.of(stream).run(&["XLEN", stream])
    }

    pub(crate) fn pending(&self, stream: &str, group: &str) -> usize {
        let (count, ..): (usize, redis::Value, redis::Value, redis::Value) =
            self.of(stream).run(&["XPENDING", stream, group]);
        count
    }

    pub(crate) fn entries(&self, stream: &str) -> Vec<HashMap<String, String>> {
        crate::entries(self.of(stream), stream)
    }

    /// Keys that this library keeps beside the streams.
    pub(crate) fn beside(&self, topic: &str) -> Vec<String> {
        let mut keys: Vec<String> = self.of(topic).run(&["KEYS", &format!("{{{topic}}}:duly-streams:*")]);
        keys.sort();
        keys
    }
}

/// Both kinds, or none if Redis is not installed.
pub(crate) fn both() -> Vec<Server> {
    if !installed() {
        return Vec::new();
    }
    vec![Server::Single(Redis::single()), Server::Cluster(Cluster::of_three())]
}
