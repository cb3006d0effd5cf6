//! One of six brokers hangs: what goes to the others arrives while it does.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod brokers;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use brokers::{Broker, all};
use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_core::Lane;
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use testkit::servers::wait_until;

/// Messages to each sink in each round.
const ROUND: u64 = 50;
/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(120);

async fn start(brokers: &[Broker]) -> Duly {
    let clock = Arc::new(SystemClock::new().unwrap());
    let mut builder = Duly::builder().store(Arc::new(MemoryStore::new())).clock(clock.clone());
    for broker in brokers {
        // Short, so that a broker that hung is soon tried again; what is asserted does not depend on it.
        let config = format!("{}\nrequest_timeout = '2s'", broker.config);
        let config: SinkConfig = toml::from_str(&config).unwrap();
        let options = SinkOptions { timeout: Duration::from_secs(3), ..SinkOptions::default() };
        builder = builder.sink(broker.name, config.build(clock.clone()).unwrap(), options);
    }
    builder.start().await.unwrap()
}

/// How many were delivered, by sink.
fn delivered(duly: &Duly) -> BTreeMap<String, u64> {
    let measures = duly.metrics();
    let sinks = measures.lanes.into_iter().filter_map(|(lane, measures)| match lane {
        Lane::Sink(name) => Some((name.to_string(), measures.delivered)),
        _ => None,
    });
    sinks.collect()
}

async fn send(duly: &Duly, brokers: &[Broker], round: &str) {
    for broker in brokers {
        let messages = (0..ROUND).map(|n| {
            let message =
                Message::to_sink(broker.name, broker.topic).id(format!("{}-{round}-{n}", broker.name));
            message.text("body").after(Duration::from_millis(n))
        });
        for sent in duly.send_batch(messages).await {
            sent.unwrap();
        }
    }
}

/// Waits until all of `brokers` have so many.
fn wait_for(duly: &Duly, what: &str, brokers: &[&Broker], count: u64) {
    wait_until(what, PATIENCE, || {
        let delivered = delivered(duly);
        brokers.iter().all(|broker| delivered.get(broker.name).is_some_and(|there| *there >= count))
    });
}

#[test]
fn messages_to_five_brokers_arrive_while_the_sixth_hangs() {
    let brokers = all();
    if brokers.len() < 2 {
        return;
    }
    testkit::block_on(async {
        let duly = start(&brokers).await;
        let everybody: Vec<&Broker> = brokers.iter().collect();
        send(&duly, &brokers, "first").await;
        tokio::task::block_in_place(|| wait_for(&duly, "all brokers work", &everybody, ROUND));
        for (round, hanging) in (1..).zip(&brokers) {
            (hanging.pause)();
            send(&duly, &brokers, hanging.name).await;
            let others: Vec<&Broker> = brokers.iter().filter(|broker| broker.name != hanging.name).collect();
            let (before, after) = (ROUND * round, ROUND * (round + 1));
            tokio::task::block_in_place(|| {
                let what = format!("all but {} have their messages", hanging.name);
                wait_for(&duly, &what, &others, after);
                assert_eq!(delivered(&duly)[hanging.name], before, "{} hangs all the while", hanging.name);
                (hanging.cont)();
                wait_for(&duly, &format!("{} has its messages, too", hanging.name), &everybody, after);
            });
        }
        assert_eq!(duly.stats().dead, 0);
        duly.shutdown().await.unwrap();
    });
}
