//! The demo's worker: takes from the built-in queue, and is not always happy with what it gets.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::{DemoEvent, story};
use crate::{Failure, clock};
use duly_client::{
    Client,
    wire::{Nack, ReceiptResults, Receive, ReceivedMessage},
};

const AGAIN: Duration = Duration::from_millis(400);
const WAIT: Duration = Duration::from_secs(5);

pub(super) async fn run(client: Client, seen: UnboundedSender<DemoEvent>) {
    // The letter that was replayed comes with its attempts counted afresh: only this tells it apart.
    let mut poison_left = story::POISON_ATTEMPTS;
    loop {
        let request = Receive { max: Some(10), wait: Some(WAIT.into()), lease: None };
        let messages = match client.receive(story::TOPIC, &request).await {
            Ok(messages) => messages,
            Err(error) => {
                let _ = seen.send(DemoEvent::Broken(error.into()));
                return;
            }
        };
        let now_us = clock::now_us();
        for message in messages {
            let settled = settle(&client, &message, now_us, &mut poison_left).await;
            let _ = seen.send(settled.unwrap_or_else(DemoEvent::Broken));
        }
    }
}

async fn settle(
    client: &Client,
    message: &ReceivedMessage,
    now_us: u64,
    poison_left: &mut u32,
) -> Result<DemoEvent, Failure> {
    let (id, attempt) = (message.id.clone(), message.attempt);
    let due_us = message.deliver_at_ms.saturating_mul(1_000);
    let receipts = vec![message.receipt.clone()];
    let poisoned = id == story::POISON && *poison_left > 0;
    if poisoned || (id == story::FLAKY && attempt == 1) {
        *poison_left -= u32::from(poisoned);
        let nack = Nack { receipts, delay: Some(AGAIN.into()), ..Nack::default() };
        done(client.nack(story::TOPIC, &nack).await?)?;
        return Ok(DemoEvent::Released { id, attempt, again: AGAIN });
    }
    done(client.ack(story::TOPIC, receipts).await?)?;
    if now_us < due_us {
        return Ok(DemoEvent::Early { id });
    }
    // A second try is as late as its wait, and a replay as its death: neither is lateness.
    let first = attempt == 1 && id != story::POISON;
    Ok(DemoEvent::Delivered { id, attempt, late_us: first.then(|| now_us - due_us), by: "by the worker" })
}

fn done(answer: ReceiptResults) -> Result<(), Failure> {
    match answer.results.iter().find(|result| result.outcome != "done") {
        None => Ok(()),
        Some(result) => Err(Failure::failed(format!("a receipt of the demo's worker is {}", result.outcome))),
    }
}
