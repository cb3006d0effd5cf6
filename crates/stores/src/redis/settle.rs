//! Ending claims, and letting them go on.

use std::time::Duration;

use duly_core::{
    Attempt, Now, Outcome, Receipt,
    store::{Settle, Settled, StoreError, Verdict},
};

use super::{RedisStore, call::by_shard, keys::six, packed::pack_attempt, scripts};

impl RedisStore {
    pub(super) async fn settle_all(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        let items = batch.iter().map(|settle| (&settle.receipt, packed_verdict(now, &settle.verdict)));
        let shards = by_shard(&self.keys, items, |(receipt, _)| &receipt.id, |(_, verdict)| verdict.len());
        let put = |cmd: &mut redis::Cmd, (receipt, verdict): &(&Receipt, Vec<u8>)| {
            cmd.arg(receipt.id.as_str()).arg(self.token_of(receipt)).arg(verdict.as_slice());
        };
        self.run_all((&scripts::SETTLE, now), shards, |_| (), put, settled).await
    }

    pub(super) async fn extend_all(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        let (end, span) = self.lease_end(now, lease);
        let shards =
            by_shard(&self.keys, receipts, |receipt| &receipt.id, |receipt| receipt.id.as_str().len());
        let begin = |cmd: &mut redis::Cmd| {
            cmd.arg(end).arg(span);
        };
        let put = |cmd: &mut redis::Cmd, receipt: &&Receipt| {
            cmd.arg(receipt.id.as_str()).arg(self.token_of(receipt));
        };
        self.run_all((&scripts::EXTEND, now), shards, begin, put, settled).await
    }

    /// The end of a lease in the store's time, and its span, both in microseconds.
    pub(super) fn lease_end(&self, now: Now, lease: Duration) -> (u64, u64) {
        /// A lease of a year is for ever; a longer one would not be exact in a sorted set.
        const SPAN_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
        let span = lease.min(SPAN_MAX).as_micros() as u64;
        (self.time.latest_tick(now) + span, span)
    }

    /// The receipt's token; 0, which is never given, if the receipt names another shard than the message's.
    fn token_of(&self, receipt: &Receipt) -> u64 {
        /// Scripts count in floating-point numbers: a larger one is forged, and might look like its neighbour.
        const TOKEN_MAX: u64 = 1 << 53;
        let its_own = receipt.shard == self.keys.shard_of(&receipt.id) && receipt.token < TOKEN_MAX;
        if its_own { receipt.token } else { 0 }
    }
}

/// As `settle.lua` reads it.
fn packed_verdict(now: Now, verdict: &Verdict) -> Vec<u8> {
    let delivered = Attempt::new(now.wall(), Outcome::Delivered, "");
    let (letter, attempt, rest) = match verdict {
        Verdict::HandBack => (b'H', None, Vec::new()),
        Verdict::Retry { at, attempt } => (b'R', Some(attempt), six(*at).to_vec()),
        Verdict::Delivered { receipt } => (
            b'D',
            Some(&delivered),
            receipt.iter().flat_map(|text| [b"=", text.as_bytes()].concat()).collect(),
        ),
        Verdict::Dead { reason, attempt } => (b'X', attempt.as_ref(), vec![*reason as u8]),
    };
    let outcome = |is: fn(Outcome) -> bool| u8::from(attempt.is_some_and(|attempt| is(attempt.outcome)));
    let entry = attempt.map(pack_attempt).unwrap_or_default();
    let mut out = vec![letter, outcome(Outcome::counts), outcome(Outcome::maybe_delivered)];
    out.extend_from_slice(&(entry.len() as u16).to_be_bytes());
    out.extend_from_slice(&entry);
    out.extend_from_slice(&rest);
    out
}

fn settled(said: &[u8]) -> Option<Settled> {
    match said {
        b"d" => Some(Settled::Done),
        b"l" => Some(Settled::Lost),
        _ => None,
    }
}
