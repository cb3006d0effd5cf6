//! Orders, each with a message that cancels it unless it is paid in time.

use std::time::Duration;

use super::narrator::Narrator;
use crate::{Failure, Tint, clock};
use duly_client::{
    Client,
    wire::{Accepted, Delay, NewMessage, Receive, ReceivedMessage},
};

const TOPIC: &str = "order";
/// When an order is paid.
const PAID_AFTER: Duration = Duration::from_secs(1);
/// How long after its time a message that was cancelled is still waited for.
const WAITED_FOR: Duration = Duration::from_millis(500);
/// How long a call waits for a message.
const WAIT: Duration = Duration::from_secs(20);

/// An order that is paid in time: its message is cancelled and does not come. Returns how many milliseconds were left.
pub(super) async fn paid(client: &Client, narrator: &Narrator<'_>) -> Result<f64, Failure> {
    let message = send(client, narrator, "cancel-order-1", Duration::from_secs(3)).await?;
    clock::sleep(PAID_AFTER).await;
    let cancelled = client.cancel(&message.id).await?;
    let due_us = message.deliver_at_ms * 1_000;
    let left_ms = due_us.saturating_sub(clock::now_us()) as f64 / 1e3;
    if cancelled.already || cancelled.maybe_delivered {
        return Err(Failure::failed(format!("{} was cancelled before, or may have come", message.id)));
    }
    let words = format!("the order is paid, {left_ms:.0} ms before the message is due");
    narrator.line(Tint::Yellow, "withdrawn", &words);
    let wait = Duration::from_micros(due_us.saturating_sub(clock::now_us())) + WAITED_FOR;
    let received = client.receive(TOPIC, &waiting(wait)).await?;
    let since_ms = clock::now_us().saturating_sub(due_us) as f64 / 1e3;
    if let Some(received) = received.first() {
        return Err(Failure::failed(format!("{} came although it was cancelled", received.id)));
    }
    let state = client.get(&message.id).await?.state;
    if state != "cancelled" {
        return Err(Failure::failed(format!("{} is {state} and should be cancelled", message.id)));
    }
    let words = format!("{state}; nothing has come, {since_ms:.0} ms after it was due");
    narrator.line(Tint::Green, "checked", &words);
    Ok(left_ms)
}

/// An order that is not paid: its message comes. Returns by how many milliseconds it is late.
pub(super) async fn unpaid(client: &Client, narrator: &Narrator<'_>) -> Result<f64, Failure> {
    let message = send(client, narrator, "cancel-order-2", Duration::from_secs(2)).await?;
    let late_ms = receive(client, &message).await?;
    let words = format!("{}, {late_ms:.1} ms after it was due", message.id);
    narrator.line(Tint::Green, "delivered", &words);
    Ok(late_ms)
}

/// The same while many other messages wait.
pub(super) async fn among_others(client: &Client, narrator: &Narrator<'_>) -> Result<f64, Failure> {
    let message = send(client, narrator, "cancel-order-3", Duration::from_secs(1)).await?;
    let late_ms = receive(client, &message).await?;
    let waiting = clock::grouped(client.stats().await?.totals.pending);
    let words = format!("{late_ms:.1} ms after it was due, while {waiting} wait");
    narrator.line(Tint::Green, "delivered", &words);
    Ok(late_ms)
}

async fn send(
    client: &Client,
    narrator: &Narrator<'_>,
    id: &str,
    delay: Duration,
) -> Result<Accepted, Failure> {
    // Its delay counts from before the answer: with the time of the answer, it would seem to come early.
    let sent = narrator.now();
    let message = NewMessage {
        topic: TOPIC.into(),
        id: Some(id.into()),
        body: Some("nobody has paid: cancel the order".into()),
        delay: Some(Delay::from(delay)),
        ..NewMessage::default()
    };
    let accepted = client.send(&message).await?;
    narrator.line_of(sent, Tint::Cyan, "accepted", &format!("{id}, due in {} s", delay.as_secs()));
    Ok(accepted)
}

/// Waits for the message and acknowledges it. Returns by how many milliseconds it is late.
async fn receive(client: &Client, message: &Accepted) -> Result<f64, Failure> {
    let mut received = client.receive(TOPIC, &waiting(WAIT)).await?;
    let now_us = clock::now_us();
    let Some(ReceivedMessage { id, receipt, deliver_at_ms, .. }) = received.pop() else {
        return Err(Failure::failed(format!("{} has not come within {} s", message.id, WAIT.as_secs())));
    };
    if id != message.id || !received.is_empty() {
        return Err(Failure::failed(format!("{id} came, and only {} should have", message.id)));
    }
    let Some(late_us) = now_us.checked_sub(deliver_at_ms * 1_000) else {
        return Err(Failure::failed(format!("{id} came before its time: please report this")));
    };
    let acked = client.ack(TOPIC, [receipt]).await?;
    match acked.results.iter().find(|result| result.outcome != "done") {
        Some(result) => Err(Failure::failed(format!("the receipt of {id} is {}", result.outcome))),
        None => Ok(late_us as f64 / 1e3),
    }
}

fn waiting(wait: Duration) -> Receive {
    Receive { max: Some(10), wait: Some(wait.into()), lease: None }
}
