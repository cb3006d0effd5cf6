//! `settle` and `extend`.

use std::time::Duration;

use duly_core::{
    Attempt, MessageId, Now, Outcome, Receipt,
    store::{Settle, Settled, Settlement, StoreError},
};

use super::{
    RedisStore,
    call::{ShardAnswers, by_shard},
    keys::six,
    packed::pack_attempt,
    scripts,
};

/// Whether the first failure of a shard fails the call, which is then tried again as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Once,
    None,
}

impl RedisStore {
    pub(super) async fn settle_all(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        let recorded =
            |settle: &Settle| self.outcomes.take_recorded(&settle.receipt, letter(&settle.settlement));
        let mut answers: Vec<Option<Settled>> = batch.iter().map(recorded).collect();
        let open: Vec<usize> = (0..batch.len()).filter(|index| answers[*index].is_none()).collect();
        let items = open.iter().map(|index| {
            let Settle { receipt, settlement } = &batch[*index];
            (receipt, packed_verdict(now, settlement))
        });
        let shards =
            by_shard(&self.keys, items, |(receipt, _)| &receipt.id, |(_, settlement)| settlement.len());
        let put = |cmd: &mut redis::Cmd, (receipt, settlement): &(&Receipt, Vec<u8>)| {
            cmd.arg(receipt.id.as_str()).arg(self.token_of(receipt)).arg(settlement.as_slice());
        };
        let read = |reply: &[u8]| self.settle_reply(reply);
        let done = self.run_by_shard((&scripts::SETTLE, now), shards, |_| (), put, read).await;
        let failed =
            self.take_answers(done, Patience::Once, |index, settled| answers[open[index]] = Some(settled));
        let replies = batch.iter().zip(answers);
        if let Err(error) = failed {
            // All of it is asked about again.
            replies.for_each(|(settle, answer)| {
                answer.inspect(|settled| {
                    self.outcomes.recorded(&settle.receipt, letter(&settle.settlement), *settled);
                });
            });
            return Err(error);
        }
        let answer = |(settle, answer): (&Settle, Option<Settled>)| {
            answer.unwrap_or_else(|| {
                self.outcomes.defer(&settle.receipt, packed_verdict(now, &settle.settlement));
                Settled::Unknown
            })
        };
        Ok(replies.map(answer).collect())
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
        let done = self.run_by_shard((&scripts::EXTEND, now), shards, begin, put, settled).await;
        // A shard that does not answer loses nothing: its leases may last longer than the outage.
        let mut answers = vec![Settled::Unknown; receipts.len()];
        self.take_answers(done, Patience::None, |index, settled| answers[index] = settled)?;
        Ok(answers)
    }

    /// What `settle.lua` says of one. The outcome of a message that cannot be read is not recorded: it is a dead letter.
    pub(super) fn settle_reply(&self, reply: &[u8]) -> Option<Settled> {
        if let Some((b'x', id)) = reply.split_first() {
            let text = std::str::from_utf8(id).ok()?;
            self.faults.damaged.record(self.keys.shard_of(&MessageId::parse(text).ok()?), id);
            return Some(Settled::Lost);
        }
        settled(reply)
    }

    /// Takes the answers of all shards. A shard that fails alone gives none and does not fail the others, except the first time with
    /// [`Patience::Once`].
    fn take_answers(
        &self,
        done: Vec<ShardAnswers<Settled>>,
        patience: Patience,
        mut take: impl FnMut(usize, Settled),
    ) -> Result<(), StoreError> {
        let mut failed = None;
        for ShardAnswers { shard, answers, error } in done {
            answers.into_iter().for_each(|(index, settled)| take(index, settled));
            if let Some(error) = error {
                let was_failing = self.faults.is_failing(shard);
                let is_alone = self.faults.record(shard, error.clone()).is_ok();
                let is_first = patience == Patience::Once && !was_failing;
                failed = failed.or((is_first || !is_alone).then_some(error));
            }
        }
        failed.map_or(Ok(()), Err)
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

/// The verdict's letter in `settle.lua`.
fn letter(settlement: &Settlement) -> u8 {
    match settlement {
        Settlement::Release => b'H',
        Settlement::Defer { .. } => b'W',
        Settlement::Retry { .. } => b'R',
        Settlement::Delivered { .. } => b'D',
        Settlement::Dead { .. } => b'X',
    }
}

/// As `settle.lua` reads it.
fn packed_verdict(now: Now, settlement: &Settlement) -> Vec<u8> {
    let delivered = Attempt::new(now.wall(), Outcome::Delivered, "");
    let (attempt, rest) = match settlement {
        Settlement::Release => (None, Vec::new()),
        Settlement::Defer { at } => (None, six(*at).to_vec()),
        Settlement::Retry { at, attempt } => (Some(attempt), six(*at).to_vec()),
        Settlement::Delivered { receipt } => {
            (Some(&delivered), receipt.iter().flat_map(|text| [b"=", text.as_bytes()].concat()).collect())
        }
        Settlement::Dead { reason, attempt } => (attempt.as_ref(), vec![*reason as u8]),
    };
    let outcome = |is: fn(Outcome) -> bool| u8::from(attempt.is_some_and(|attempt| is(attempt.outcome)));
    let entry = attempt.map(pack_attempt).unwrap_or_default();
    let mut out = vec![letter(settlement), outcome(Outcome::counts), outcome(Outcome::maybe_delivered)];
    out.extend_from_slice(&(entry.len() as u16).to_be_bytes());
    out.extend_from_slice(&entry);
    out.extend_from_slice(&rest);
    out
}

fn settled(reply: &[u8]) -> Option<Settled> {
    match reply {
        b"d" => Some(Settled::Done),
        b"l" => Some(Settled::Lost),
        _ => None,
    }
}
