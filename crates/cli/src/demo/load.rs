//! Many messages that are accepted in the background while the demo goes on.

use std::{
    fmt::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use tokio::task::JoinSet;

use super::{footprint, narrator::Narrator};
use crate::{Failure, Tint, clock, progress::Progress};
use duly_client::{
    Client, Direct,
    wire::{ItemError, Problem},
};

/// No longer than this, whatever the machine manages in it.
pub(super) const LONGEST: Duration = Duration::from_secs(12);
/// Connections that send.
const SENDERS: usize = 2;
/// Messages of one call.
const BATCH: u64 = 2_000;
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// They come due between ten minutes and a day from now, so none during the demo.
const DELAYS_MS: std::ops::Range<u64> = 600_000..86_400_000;
/// Spreads the delays of messages that follow each other: a prime beyond the square root of the range.
const STRIDE_MS: u64 = 7_919_339;

/// What was accepted, how fast, and what it takes.
#[derive(Debug, Default, Serialize)]
pub(super) struct Accepted {
    pub(super) wanted: u64,
    pub(super) accepted: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    pub(super) disk_bytes: u64,
    /// Of the whole process; none where the system does not report it.
    pub(super) memory_bytes_max: Option<u64>,
}

/// The senders at work. Dropped, they end.
pub(super) struct Load {
    shared: Arc<SharedLoad>,
    senders: JoinSet<Result<(), Failure>>,
}

struct SharedLoad {
    wanted: u64,
    longest: Duration,
    began: Instant,
    next: AtomicU64,
    accepted: AtomicU64,
    bar: Progress,
}

impl Load {
    /// Begins to send `wanted` messages, for so long at most.
    pub(super) fn start(client: &Client, wanted: u64, longest: Duration, bar: Progress) -> Self {
        let (next, accepted) = Default::default();
        let shared = Arc::new(SharedLoad { wanted, longest, began: clock::instant(), next, accepted, bar });
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            let (client, shared) = (client.clone(), shared.clone());
            senders.spawn(async move { shared.send(client.connect().await?).await });
        }
        Self { shared, senders }
    }

    /// Waits for the last answer.
    pub(super) async fn finish(mut self, narrator: &Narrator<'_>, data: &Path) -> Result<Accepted, Failure> {
        while let Some(ended) = self.senders.join_next().await {
            ended.map_err(|e| Failure::failed(format!("a sender ended badly: {e}")))??;
        }
        let span = self.shared.began.elapsed();
        self.shared.bar.end();
        let accepted = self.shared.accepted.load(Relaxed);
        let result = Accepted {
            wanted: self.shared.wanted,
            accepted,
            seconds: span.as_secs_f64(),
            per_second: accepted as f64 / span.as_secs_f64(),
            disk_bytes: footprint::disk_bytes(data),
            memory_bytes_max: footprint::memory_bytes_max(),
        };
        for (tint, what, words) in result.lines() {
            narrator.line(tint, what, &words);
        }
        Ok(result)
    }
}

impl SharedLoad {
    async fn send(&self, mut direct: Direct) -> Result<(), Failure> {
        loop {
            let from = self.next.fetch_add(BATCH, Relaxed);
            let to = (from + BATCH).min(self.wanted);
            if from >= to {
                return Ok(());
            }
            let (status, answer) =
                direct.post_lines("/v1/messages/batch", lines(from..to), ANSWER_WITHIN).await?;
            check(status, &answer, to - from)?;
            self.bar.at(self.accepted.fetch_add(to - from, Relaxed) + to - from);
            if self.began.elapsed() >= self.longest {
                return Ok(());
            }
        }
    }
}

/// The messages of these numbers, a line each.
fn lines(numbers: std::ops::Range<u64>) -> Bytes {
    let mut lines = String::new();
    for number in numbers {
        let delay = DELAYS_MS.start + number * STRIDE_MS % (DELAYS_MS.end - DELAYS_MS.start);
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            r#"{{"topic":"reminder","id":"reminder-{number}","json":{{"customer":{number}}},"delay":{delay}}}"#
        );
    }
    lines.into()
}

/// Whether every message of a batch was accepted: as long as the server has room, it refuses none of these.
fn check(status: StatusCode, answer: &[u8], sent: u64) -> Result<(), Failure> {
    #[derive(serde::Deserialize)]
    struct Refused {
        error: ItemError,
    }
    if !status.is_success() {
        let why = serde_json::from_slice::<Problem>(answer).map_or_else(|_| status.to_string(), |p| p.detail);
        return Err(Failure::failed(format!("a batch is refused: {why}")));
    }
    let mut answered = 0;
    for line in answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if let Ok(Refused { error }) = serde_json::from_slice(line) {
            return Err(Failure::failed(format!("a message is refused: {}", error.detail)));
        }
        answered += 1;
    }
    if answered != sent {
        return Err(Failure::failed(format!("{answered} of {sent} messages of a batch were answered")));
    }
    Ok(())
}

impl Accepted {
    fn lines(&self) -> Vec<(Tint, &'static str, String)> {
        let (accepted, seconds) = (clock::grouped(self.accepted), self.seconds);
        let rate = clock::grouped(self.per_second as u64);
        let mut lines =
            vec![(Tint::Green, "accepted", format!("{accepted} in {seconds:.1} s: {rate} a second"))];
        if self.accepted < self.wanted {
            let wanted = clock::grouped(self.wanted);
            let words = format!("then: on this machine {wanted} take longer");
            lines.push((Tint::Yellow, "stopped", words));
        }
        let megabytes = |bytes: u64| clock::grouped(bytes.div_ceil(1_000_000));
        let mut words = format!("{} MB on disk", megabytes(self.disk_bytes));
        if let Some(bytes) = self.memory_bytes_max {
            words += &format!(", {} MB of memory at most", megabytes(bytes));
        }
        lines.push((Tint::Cyan, "stored", words));
        lines
    }
}

#[cfg(test)]
mod tests {
    use duly_client::wire::NewMessage;

    use super::*;

    #[test]
    fn the_messages_are_what_the_server_takes_and_none_is_due_soon() {
        let lines = lines(0..1_000);
        let all: Vec<NewMessage> =
            lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!(all.len(), 1_000);
        for message in &all {
            let delay = message.delay.as_ref().unwrap().span("delay").unwrap();
            assert!((600..86_400).contains(&delay.as_secs()), "{delay:?}");
        }
    }

    #[test]
    fn a_refusal_says_why_and_an_answer_that_is_missing_is_one() {
        let taken = b"{\"id\":\"a\"}\n";
        check(StatusCode::OK, &taken.repeat(2), 2).unwrap();
        let refused = br#"{"error":{"code":"store_full","detail":"the disk is full"}}"#;
        let why = |answer: &[u8]| check(StatusCode::OK, answer, 2).unwrap_err().words;
        assert!(why(&[&taken[..], refused].concat()).ends_with("the disk is full"));
        assert_eq!(why(taken), "1 of 2 messages of a batch were answered");
        let busy = check(StatusCode::SERVICE_UNAVAILABLE, b"", 1).unwrap_err().words;
        assert!(busy.contains("503"), "{busy}");
    }

    #[test]
    fn fewer_than_were_wanted_are_reported_as_such() {
        let lines = |accepted| {
            let all = Accepted { wanted: 1_000_000, accepted, seconds: 2.0, ..Accepted::default() }.lines();
            all.into_iter().map(|(_, what, words)| format!("{what}: {words}")).collect::<Vec<_>>()
        };
        assert_eq!(lines(1_000_000).len(), 2);
        assert_eq!(lines(500_000)[1], "stopped: then: on this machine 1,000,000 take longer");
    }
}
