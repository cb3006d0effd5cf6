//! Orders that are not paid in time are cancelled. Paying takes the timeout back.
//!
//! `cargo run --example order_timeout`

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use duly::{Changed, Duly, Message, Task, Verdict, millis};
use serde::{Deserialize, Serialize};

/// Fifteen minutes in a real shop.
const TIME_TO_PAY: Duration = millis(1_500);

#[derive(Debug, Serialize, Deserialize)]
struct Timeout {
    order: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Unpaid,
    Paid,
    Cancelled,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let duly = Duly::open(folder.path()).await?;
    let shop: Arc<Mutex<HashMap<u32, Order>>> = Arc::default();
    let (cancelled, mut last) = tokio::sync::mpsc::unbounded_channel();

    let orders = shop.clone();
    duly.handle("order-timeout", move |task: Task| {
        let (orders, cancelled) = (orders.clone(), cancelled.clone());
        async move {
            let Timeout { order } = task.json()?;
            // Look again: the payment may have come in the very moment in which this message was taken.
            if let Ok(mut orders) = orders.lock()
                && let Some(state @ Order::Unpaid) = orders.get_mut(&order)
            {
                *state = Order::Cancelled;
                println!("order {order}: not paid in time, cancelled");
            }
            let _ = cancelled.send(order);
            Ok::<_, duly::Error>(Verdict::Done)
        }
    })
    .start()
    .await?;

    for order in 1..=3 {
        set(&shop, order, Order::Unpaid);
        // The id makes it possible to take the timeout back, and to send it twice without harm.
        let timeout = Message::to("order-timeout").id(format!("order-{order}")).json(&Timeout { order })?;
        let accepted = duly.send(timeout.after(TIME_TO_PAY)).await?;
        println!("order {order}: to be paid by {}", accepted.due);
    }

    set(&shop, 2, Order::Paid);
    match duly.cancel("order-2").await? {
        Changed::Done { .. } => println!("order 2: paid, its timeout is cancelled"),
        other => println!("order 2: paid, but {other:?}; the handler will see that it is paid"),
    }

    last.recv().await;
    last.recv().await;
    duly.shutdown().await?;
    println!("in the end: {:?}", shop.lock().map(|shop| shop.clone()));
    Ok(())
}

fn set(shop: &Mutex<HashMap<u32, Order>>, order: u32, state: Order) {
    if let Ok(mut shop) = shop.lock() {
        shop.insert(order, state);
    }
}
