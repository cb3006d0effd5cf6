//! An order that is not paid in time is cancelled. Against a server: `duly serve`, then `cargo run -p duly-client --example orders`.

use std::time::Duration;

use duly_client::{
    Client, Error,
    wire::{NewMessage, Receive},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::new("http://127.0.0.1:7380")?;
    let cancelled = orders(&client).await?;
    println!("not paid in time: {cancelled:?}");
    Ok(())
}

pub(crate) async fn orders(client: &Client) -> Result<Vec<String>, Error> {
    // Fifteen minutes in earnest; here a fraction of a second.
    let pay_within = Duration::from_millis(200);
    for order in ["order-42", "order-43"] {
        // The id makes a repeated send harmless: it is accepted once.
        client.send(&NewMessage::to("unpaid").id(order).json(&order)?.after(pay_within)).await?;
    }
    // This one is paid: its message will not come.
    client.cancel("order-43").await?;

    // The worker, wherever it runs: waits for what is due, and acknowledges what it has done.
    let how = Receive { wait: Some(Duration::from_secs(10).into()), ..Receive::default() };
    let mut cancelled = Vec::new();
    for message in client.receive("unpaid", &how).await? {
        // ... cancel the order ...
        client.ack("unpaid", [&message.receipt]).await?;
        cancelled.push(message.id);
    }
    Ok(cancelled)
}
