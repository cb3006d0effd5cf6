//! Orders that are cancelled unless they are paid in time. Needs a Redis: `cargo run -p duly-streams --features delayed --example orders`,
//! with an address as the argument if it is not on this machine.

use std::{error::Error, time::Duration};

use duly_streams::{Entry, Settings, Streams};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1".into());
    let order = orders(&url).await?;
    println!("order {} was not paid in time: cancelled", order.number);
    Ok(())
}

/// The order that is not paid in time.
pub(crate) async fn orders(url: &str) -> Result<Order, Box<dyn Error>> {
    // An example may lose what waits; a shop would rather turn on the append-only file.
    let streams =
        Streams::connect_with(url, Settings { allow_volatile: true, ..Settings::default() }).await?;

    let (done, mut cancelled) = mpsc::unbounded_channel();
    streams
        .listener("example.order.unpaid", move |order: Entry<Order>| {
            let done = done.clone();
            async move { done.send(order.value) }
        })
        .start()
        .await?;

    // Fifteen minutes in earnest.
    let soon = Duration::from_millis(500);
    streams.delay_send("example.order.unpaid", &Order { number: 42 }, soon).await?;
    let paid = streams.delay_send("example.order.unpaid", &Order { number: 43 }, soon).await?;
    println!("order 43 was paid: {:?}", streams.cancel(&paid).await?);

    let order = cancelled.recv().await.ok_or("the listener stopped")?;
    streams.shutdown().await?;
    Ok(order)
}
