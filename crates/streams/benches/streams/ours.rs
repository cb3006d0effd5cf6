//! The same with `duly-streams`: values as JSON, typed again on the other side.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use duly_streams::{Entry, Handler, Settings, Streams};
use testkit::servers::redis::Redis;
use tokio::sync::Notify;

use crate::{Arguments, Order};

pub(crate) struct Ours {
    streams: Streams,
    redis: Redis,
}

impl Ours {
    pub(crate) async fn new(redis: Redis) -> Self {
        Self { streams: Streams::connect_with(&redis.url(), Settings::default()).await.unwrap(), redis }
    }

    pub(crate) async fn send_one_by_one(&self, count: usize) {
        for number in 0..count {
            self.streams.send("single", &Order::new(number)).await.unwrap();
        }
    }

    pub(crate) async fn send_many(&self, arguments: &Arguments) {
        for begin in (0..arguments.many).step_by(arguments.batch) {
            let end = (begin + arguments.batch).min(arguments.many);
            let orders: Vec<_> = (begin..end).map(Order::new).collect();
            for sent in self.streams.send_batch("many", &orders).await.unwrap() {
                sent.unwrap();
            }
        }
    }

    pub(crate) async fn send_async(&self, arguments: &Arguments) {
        const WAITING: usize = 5_000;
        let mut sendings = std::collections::VecDeque::new();
        for number in 0..arguments.many {
            sendings.push_back(self.streams.send_async("async", &Order::new(number)));
            if sendings.len() > WAITING
                && let Some(first) = sendings.pop_front()
            {
                first.await.unwrap();
            }
        }
        for sending in sendings {
            sending.await.unwrap();
        }
    }

    /// Until the last is acknowledged.
    pub(crate) async fn consume(&self, arguments: &Arguments) {
        let (count, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, reported, many) = (count.clone(), all.clone(), arguments.many);
        let handler = Handler::batch(move |orders: Vec<Entry<Order>>| {
            if counted.fetch_add(orders.len(), Ordering::Relaxed) + orders.len() == many {
                reported.notify_one();
            }
            std::future::ready(Ok::<(), String>(()))
        });
        let listener = self
            .streams
            .listener("many", handler)
            .batch(arguments.batch)
            .concurrency(2)
            .start()
            .await
            .unwrap();
        all.notified().await;
        let pending = || {
            self.redis
                .run::<(usize, redis::Value, redis::Value, redis::Value)>(&[
                    "XPENDING",
                    "many",
                    "duly-streams",
                ])
                .0
        };
        while pending() > 0 {
            tokio::task::yield_now().await;
        }
        drop(listener);
        assert_eq!(count.load(Ordering::Relaxed), many);
    }
}
