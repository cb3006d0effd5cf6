//! The steps of the demo, in order.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::{DemoEvent, Summary, narrator::Narrator};
use crate::{Failure, Tint, clock};
use duly_client::{
    Client, Query,
    wire::{BulkRequest, Delay, NewMessage, Retry, TotalsAnswer},
};

pub(super) const SINK: &str = "hooks";
pub(super) const LEVEL: &str = "P0";
pub(super) const TOPIC: &str = "order";
/// Nacked once, acknowledged at the second attempt.
pub(super) const FLAKY: &str = "flaky";
/// Nacked until its attempts are used up, acknowledged after its replay.
pub(super) const POISON: &str = "poison";
pub(super) const POISON_ATTEMPTS: u32 = 2;

/// Five orders, a flaky one, a poisonous one, a webhook, one by level and one that is fired.
const DELIVERIES: u64 = 10;

pub(super) async fn run(
    client: &Client,
    mut narrator: Narrator<'_>,
    seen: UnboundedSender<DemoEvent>,
    mut sight: UnboundedReceiver<DemoEvent>,
) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    send_all(client, &mut narrator, &mut summary).await?;
    let changes = changes_of_mind(client, seen);
    tokio::pin!(changes);
    let mut changed = false;
    while summary.delivered < DELIVERIES || !changed {
        tokio::select! {
            Some(seen) = sight.recv() => watch(client, &mut narrator, &mut summary, seen).await?,
            done = &mut changes, if !changed => {
                done?;
                changed = true;
            }
        }
    }
    // One delivery too many would show here.
    while let Ok(seen) = sight.try_recv() {
        watch(client, &mut narrator, &mut summary, seen).await?;
    }
    summary.totals = final_totals(client).await?;
    Ok(summary)
}

/// The totals, once the last delivery is in them: a webhook has its message a moment before Duly knows.
async fn final_totals(client: &Client) -> Result<TotalsAnswer, Failure> {
    loop {
        let totals = client.stats().await?.totals;
        if totals.pending + totals.in_flight == 0 {
            return Ok(totals);
        }
        clock::sleep(Duration::from_millis(20)).await;
    }
}

async fn send_all(
    client: &Client,
    narrator: &mut Narrator<'_>,
    summary: &mut Summary,
) -> Result<(), Failure> {
    let to = |id: &str, delay: Option<&str>| NewMessage {
        topic: TOPIC.into(),
        id: Some(id.into()),
        body: Some(format!("hello from {id}")),
        delay: delay.map(|text| Delay::Text(text.into())),
        ..NewMessage::default()
    };
    let orders = (1..=5).map(|number| to(&format!("order-{number}"), Some(&format!("{number}s"))));
    let retry = Some(Retry { attempts: Some(POISON_ATTEMPTS), ..Retry::default() });
    let others = [
        to("order-6", Some("5s")),
        to(FLAKY, Some("2s")),
        NewMessage { retry, ..to(POISON, Some("1500ms")) },
        NewMessage { sink: Some(SINK.into()), topic: "paid".into(), ..to("webhook", Some("3500ms")) },
        NewMessage { level: Some(LEVEL.into()), ..to("by-level", None) },
        to("someday", Some("1h")),
    ];
    for message in orders.chain(others) {
        // Its delay counts from before the answer: told with the time of the answer, it would seem to come early.
        let sent = narrator.now();
        let accepted = client.send(&message).await?;
        summary.sent += 1;
        let place = match &message.sink {
            Some(sink) => format!("to {sink}/{}", accepted.topic),
            None => format!("to queue {}", accepted.topic),
        };
        let due = match (&message.delay, &message.level) {
            (Some(Delay::Text(text)), _) => format!("due in {text}"),
            (_, Some(level)) => format!("due by level {level}"),
            _ => "due now".to_owned(),
        };
        narrator.line_of(sent, Tint::Cyan, "sent", &accepted.id, &format!("{place}, {due}"));
    }
    Ok(())
}

/// An order is paid, and need not be delivered; one that was due in an hour is wanted at once.
async fn changes_of_mind(client: &Client, seen: UnboundedSender<DemoEvent>) -> Result<(), Failure> {
    clock::sleep(Duration::from_millis(1_250)).await;
    let cancelled = client.cancel("order-6").await?;
    let _ = seen.send(DemoEvent::Cancelled { id: cancelled.id });
    clock::sleep(Duration::from_millis(3_000)).await;
    // Sent first: the delivery may come before the answer to this call.
    let _ = seen.send(DemoEvent::Fired { id: "someday".into() });
    client.fire("someday").await?;
    Ok(())
}

async fn watch(
    client: &Client,
    narrator: &mut Narrator<'_>,
    summary: &mut Summary,
    seen: DemoEvent,
) -> Result<(), Failure> {
    match seen {
        DemoEvent::Delivered { id, attempt, late_us, by } => {
            summary.delivered += 1;
            let words = match late_us {
                Some(late_us) => {
                    summary.late.record(late_us);
                    format!("{:.1} ms late, {by}", late_us as f64 / 1_000.0)
                }
                None if attempt == 1 => format!("after its replay, {by}"),
                None => format!("at attempt {attempt}, {by}"),
            };
            narrator.line(Tint::Green, "delivered", &id, &words);
        }
        DemoEvent::Released { id, attempt, .. } if id == POISON && attempt >= POISON_ATTEMPTS => {
            narrator.line(Tint::Red, "dead", &id, &format!("given back {attempt} times: no attempts left"));
            replay(client, narrator, summary).await?;
        }
        DemoEvent::Released { id, attempt, again } => {
            summary.retried += 1;
            let again = clock::span(u64::try_from(again.as_millis()).unwrap_or(u64::MAX));
            narrator.line(
                Tint::Yellow,
                "given back",
                &id,
                &format!("attempt {attempt} (nack), again in {again}"),
            );
        }
        DemoEvent::Cancelled { id } => {
            summary.cancelled += 1;
            narrator.line(Tint::Yellow, "cancelled", &id, "paid in time: it will not come");
        }
        DemoEvent::Fired { id } => {
            summary.fired += 1;
            narrator.line(Tint::Cyan, "fired", &id, "now, instead of in an hour");
        }
        DemoEvent::Early { id } => {
            summary.early += 1;
            narrator.line(Tint::Red, "EARLY", &id, "this must never happen");
        }
        DemoEvent::Broken(failure) => return Err(failure),
    }
    Ok(())
}

async fn replay(client: &Client, narrator: &mut Narrator<'_>, summary: &mut Summary) -> Result<(), Failure> {
    let letters = client.dead(&Query::default()).await?;
    summary.dead += letters.messages.len() as u64;
    let ids = Some(vec![POISON.to_owned()]);
    let request = BulkRequest { ids, ..BulkRequest::default() };
    let answer = client.replay(&request).await?;
    summary.replayed += answer.done;
    narrator.line(Tint::Cyan, "replayed", POISON, "its attempts begin afresh");
    Ok(())
}
