//! A sink in a whole Duly: what its tests send through the engine to a real server.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_core::Sink;
use duly_stores::MemoryStore;

use crate::servers::wait_until;

/// The name of the sink.
pub const SINK: &str = "events";
/// How many messages [`deliver_all`] sends.
pub const MESSAGES: usize = 200;

/// Starts a Duly with this sink, and with its messages in memory.
pub async fn with_sink(sink: Arc<dyn Sink>, options: SinkOptions) -> Duly {
    let builder = Duly::builder().store(Arc::new(MemoryStore::new()));
    let builder = builder.clock(Arc::new(SystemClock::new().unwrap()));
    builder.sink(SINK, sink, options).start().await.unwrap()
}

/// Sends [`MESSAGES`] messages with ids of their own to `topic`, due one after the other, and returns when all of them are delivered and
/// `dead` others are dead letters.
pub async fn deliver_all(duly: &Duly, topic: &str, dead: u64) {
    for n in 0..MESSAGES {
        let message = Message::to_sink(SINK, topic).id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n as u64 % 50))).await.unwrap();
    }
    tokio::task::block_in_place(|| {
        wait_until("all is delivered or dead", Duration::from_secs(60), || {
            let stats = duly.stats();
            stats.delivered >= MESSAGES as u64 && stats.dead >= dead
        });
    });
}
