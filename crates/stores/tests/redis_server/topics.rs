//! Topics that are not moved into streams.

use std::{sync::Arc, time::Duration};

use duly_core::{
    Lane, Remaining, Store, TopicPatterns,
    store::{Claim, Holder},
};
use duly_stores::redis::{Options, StreamLimits};
use testkit::{
    block_on,
    servers::redis::{self, Redis},
};

use crate::{
    bed::{insert, now, open},
    in_store_delivery::{bed, in_store, sink, to},
};

#[test]
fn a_topic_that_names_a_key_of_the_store_is_left_for_the_sink_to_refuse() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        let kept = [
            "duly:{main}:paused",
            "duly:{main:3}:new",
            "duly-streams:lock:{a}",
            "{orders}:duly-streams:due:normal:g",
        ];
        let all = kept.iter().zip(0..).map(|(topic, n)| to(topic, &format!("k{n}"), 0));
        insert(&store, all.chain([to("orders", "a", 0)]).collect()).await.unwrap();
        let mut moved = Vec::new();
        for _ in 0..3 {
            let again = in_store.deliver_due(now(1), 1000).await.unwrap();
            assert_eq!(again.remaining, Remaining::ToClaim);
            moved.extend(again.messages);
        }
        assert_eq!(moved.iter().map(|message| message.id.as_str()).collect::<Vec<_>>(), ["a"]);
        for key in kept {
            assert_eq!(redis.run::<usize>(&["EXISTS", key]), 0, "{key}");
        }
        let claim = Claim {
            lane: Lane::Sink(sink()),
            limit: 10,
            lease: Duration::from_secs(10),
            holder: Holder::Process,
        };
        assert_eq!(store.claim(now(1), claim).await.unwrap().messages.len(), kept.len());
    });
}

#[test]
fn only_topics_that_the_sink_takes_are_moved() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let redis = Redis::single();
        let store = Arc::new(open(&redis.url(), Options::new(1)).await.unwrap());
        let topics = TopicPatterns::new(["orders*"]).unwrap();
        let in_store = in_store(&store, StreamLimits { topics, ..StreamLimits::default() });
        insert(&store, vec![to("orders.paid", "a", 0), to("mail", "b", 0)]).await.unwrap();
        let mut moved = Vec::new();
        for _ in 0..3 {
            moved.extend(in_store.deliver_due(now(1), 1000).await.unwrap().messages);
        }
        assert_eq!(moved.iter().map(|message| message.id.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(redis.run::<usize>(&["EXISTS", "mail"]), 0);
    });
}
