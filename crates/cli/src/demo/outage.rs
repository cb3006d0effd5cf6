//! A webhook receiver that goes away and comes back.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use super::{SINK, narrator::Narrator, receiver::Receiver};
use crate::{Failure, Tint, clock};
use duly_client::{
    Client,
    wire::{BatchResult, Delay, NewMessage, Sink},
};

const TOPIC: &str = "notice";
/// Notices that come due while the receiver is away.
pub(super) const NOTICES: usize = 12;
const DELAY: Duration = Duration::from_secs(1);
/// How long the receiver stays away once the notices wait for it.
const AWAY: Duration = Duration::from_millis(800);
/// How often the server is asked.
const POLL: Duration = Duration::from_millis(20);

/// What became of the notices.
#[derive(Debug, Default, Serialize)]
pub(super) struct Outage {
    pub(super) messages: usize,
    pub(super) arrived: usize,
    /// The number of the attempt by which they arrived, the highest.
    pub(super) attempt_max: u32,
    pub(super) away_ms: f64,
    /// From the return of the receiver to the last of them.
    pub(super) all_after_ms: f64,
}

pub(super) async fn run(
    client: &Client,
    narrator: &Narrator<'_>,
    mut receiver: Receiver,
) -> Result<Outage, Failure> {
    send(client, vec![notice("notice-0", Duration::ZERO)]).await?;
    receiver.next().await?;
    // Its answer has to reach the server before the connection is closed.
    sink(client, |sink| sink.pending + sink.in_flight == 0).await?;
    narrator.line(Tint::Green, "delivered", "a first notice by webhook: the receiver is there");

    let stopped = receiver.stop().await?;
    let began = clock::instant();
    let ids: BTreeSet<_> = (1..=NOTICES).map(|number| format!("notice-{number}")).collect();
    send(client, ids.iter().map(|id| notice(id, DELAY)).collect()).await?;
    let words = format!("the receiver; {NOTICES} notices come due in {} s", DELAY.as_secs());
    narrator.line(Tint::Red, "stopped", &words);

    clock::sleep(DELAY).await;
    let waiting = sink(client, is_away).await?.pending;
    narrator.line(Tint::Yellow, "waiting", &format!("{waiting} of {NOTICES}: the receiver is unreachable"));
    clock::sleep(AWAY).await;

    let mut receiver = stopped.start()?;
    let (away, back) = (began.elapsed(), clock::instant());
    narrator.line(Tint::Cyan, "started", &format!("the receiver, after {:.1} s", away.as_secs_f64()));
    let (mut missing, mut attempt_max) = (ids, 0);
    while !missing.is_empty() {
        let arrival = receiver.next().await?;
        if !missing.remove(&arrival.id) {
            return Err(Failure::failed(format!("{} came twice", arrival.id)));
        }
        attempt_max = attempt_max.max(arrival.attempt);
    }
    let after = back.elapsed();
    if attempt_max != 1 {
        let why = format!("an outage counts as no attempt, and one came as attempt {attempt_max}");
        return Err(Failure::failed(why));
    }
    let words =
        format!("{NOTICES} of {NOTICES}, {:.2} s after its return, no attempt lost", after.as_secs_f64());
    narrator.line(Tint::Green, "delivered", &words);
    // Stopping it would close connections on which the server waits for an answer.
    sink(client, |sink| sink.pending + sink.in_flight == 0).await?;
    Ok(Outage {
        messages: NOTICES,
        arrived: NOTICES - missing.len(),
        attempt_max,
        away_ms: away.as_secs_f64() * 1e3,
        all_after_ms: after.as_secs_f64() * 1e3,
    })
}

fn notice(id: &str, delay: Duration) -> NewMessage {
    NewMessage {
        topic: TOPIC.into(),
        sink: Some(SINK.into()),
        id: Some(id.into()),
        body: Some("your order is on its way".into()),
        delay: Some(Delay::from(delay)),
        ..NewMessage::default()
    }
}

async fn send(client: &Client, messages: Vec<NewMessage>) -> Result<(), Failure> {
    let results = client.send_batch(&messages).await?;
    let refused = results.iter().find_map(|result| match result {
        BatchResult::Refused { error } => Some(format!("a notice is refused: {}", error.detail)),
        _ => None,
    });
    match refused {
        Some(why) => Err(Failure::failed(why)),
        None if results.len() < messages.len() => Err(Failure::failed("not all notices were accepted")),
        None => Ok(()),
    }
}

/// All of them wait, and the server knows why.
fn is_away(sink: &Sink) -> bool {
    let is_unreachable = sink.state == "unreachable" || sink.destinations_unreachable > 0;
    is_unreachable && sink.pending == NOTICES as u64
}

/// Waits until the server says that of the sink.
async fn sink(client: &Client, is: impl Fn(&Sink) -> bool) -> Result<Sink, Failure> {
    loop {
        let sinks = client.sinks().await?.sinks;
        if let Some(sink) = sinks.into_iter().find(|sink| sink.name == SINK && is(sink)) {
            return Ok(sink);
        }
        clock::sleep(POLL).await;
    }
}
