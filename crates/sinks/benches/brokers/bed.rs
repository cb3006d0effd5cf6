//! The same messages twice, by turns: by the sink, and by the bare loop.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use duly::{Sink, SystemClock};
use duly_core::{Body, Delivery, Message, Timestamp};
use duly_sinks::SinkConfig;
use testkit::bench::{process, report::Report};

use crate::Arguments;

/// Where all messages go.
pub(crate) const TOPIC: &str = "orders";
/// Each side has this many turns, so that what else the machine does falls on both.
const TURNS: usize = 10;

/// One broker, with a place for the messages.
#[async_trait]
pub(crate) trait Broker: Sync {
    fn name(&self) -> &'static str;

    /// The configuration of its sink.
    fn config(&self) -> String;

    /// Publishes a batch by the bare client and returns when all of it is acknowledged, with the guarantees of the sink.
    async fn bare(&self, batch: &[Delivery]);
}

/// Messages per second by both, the sink's beside the other.
pub(crate) async fn compare(report: &mut Report, broker: &dyn Broker, arguments: &Arguments) {
    let config: SinkConfig = toml::from_str(&broker.config()).unwrap();
    let sink = config.build(Arc::new(SystemClock::new().unwrap())).unwrap();
    let per_turn = arguments.messages.div_ceil(TURNS);
    let (mut bare, mut ours) = (Duration::ZERO, Duration::ZERO);
    // The first turn of each makes connections, and is not counted.
    for turn in 0..=TURNS {
        let counts = u32::from(turn > 0);
        let began = process::now();
        for batch in messages(&format!("bare-{turn}"), per_turn, arguments.body).chunks(arguments.batch) {
            broker.bare(batch).await;
        }
        bare += began.elapsed() * counts;
        let began = process::now();
        for batch in messages(&format!("duly-{turn}"), per_turn, arguments.body).chunks(arguments.batch) {
            deliver(&*sink, batch).await;
        }
        ours += began.elapsed() * counts;
    }
    let rate = |time: Duration| (per_turn * TURNS) as f64 / time.as_secs_f64();
    let name = format!("{}, batches of {}", broker.name(), arguments.batch);
    report.beside(name, rate(ours), "1/s", rate(bare));
}

async fn deliver(sink: &dyn Sink, batch: &[Delivery]) {
    for outcome in sink.deliver(batch).await {
        outcome.unwrap();
    }
}

fn messages(name: &str, count: usize, body: usize) -> Vec<Delivery> {
    let message = |n: usize| {
        let id = format!("{name}-{n}").parse().unwrap();
        let message =
            Message::new(id, "events".parse().unwrap(), TOPIC.parse().unwrap(), Timestamp::from_millis(1));
        Delivery::new(Message { body: Body::bytes(vec![b'x'; body]), ..message }, 1)
    };
    (0..count).map(message).collect()
}
