//! The ends of claims: settled, extended, or lost.

use std::time::Duration;

use duly_core::{
    Attempt, Lost, Now, Outcome, Receipt, State, Timestamp,
    store::{Settle, Settled, StoreError, Verdict},
};

use super::{
    Shared,
    claim::damaged,
    engine::{Class, Engine},
    entry::{self, Stored},
    flight::Note,
};

/// How many ended leases one sweep deals with.
const LEASES_PER_SWEEP: usize = 1000;

impl Shared {
    pub(super) async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        let mut rewritten = self.rewrite(now, &batch).await?;
        let bytes: usize =
            rewritten.iter().flatten().map(|entry| entry.len() + 64).sum::<usize>() + batch.len() * 512;
        self.admitted(bytes, Class::Change).await?;
        let mut released = Vec::new();
        let (answers, commit) = {
            let mut engine = self.engine();
            engine.check_open()?;
            if engine.tick(now) {
                self.keeper.notify_one();
            }
            let answers: Vec<Settled> = batch
                .iter()
                .zip(&mut rewritten)
                .map(|(settle, entry)| {
                    settle_one(&mut engine, now, settle, entry.as_deref_mut(), &mut released)
                })
                .collect();
            self.wake(&mut engine);
            (answers, engine.journal.commit())
        };
        if let Err(error) = self.claims.write(released) {
            // Only the count of a try is at stake, and only if the process dies now.
            tracing::warn!(%error, "a hand-back could not be recorded");
        }
        if batch.iter().any(|settle| settle.verdict != Verdict::HandBack) {
            self.committed(&commit).await?;
        }
        Ok(answers)
    }

    /// The new entries of those that stay: retried or dead. The others have none.
    async fn rewrite(&self, now: Now, batch: &[Settle]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut entries = Vec::with_capacity(batch.len());
        for settle in batch {
            let needs = match &settle.verdict {
                Verdict::Retry { .. } | Verdict::Dead { .. } => true,
                Verdict::Delivered { .. } | Verdict::HandBack => false,
            };
            entries.push(if needs { self.rewrite_one(now, settle).await? } else { None });
        }
        Ok(entries)
    }

    async fn rewrite_one(&self, now: Now, settle: &Settle) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((mut stored, lane)) = self.held_entry(&settle.receipt, now).await? else { return Ok(None) };
        let note = |stored: &mut Stored, attempt: &Attempt| {
            if attempt.outcome.counts() {
                stored.attempts += 1;
            }
            stored.remember(attempt.clone());
        };
        stored.lost = Lost::No;
        match &settle.verdict {
            Verdict::Retry { at, attempt } => {
                note(&mut stored, attempt);
                stored.ready = (*at).max(stored.message.due);
            }
            Verdict::Dead { reason, attempt } => {
                if let Some(attempt) = attempt {
                    note(&mut stored, attempt);
                }
                stored.dead = Some((*reason, now.wall()));
            }
            Verdict::Delivered { .. } | Verdict::HandBack => {}
        }
        let mut bytes = Vec::with_capacity(512 + stored.message.body.len());
        entry::encode(&stored, lane, &mut bytes);
        Ok(Some(bytes))
    }

    /// The entry of a claimed message, while the claim is its holder's.
    async fn held_entry(&self, receipt: &Receipt, now: Now) -> Result<Option<(Stored, u32)>, StoreError> {
        let found = {
            let engine = self.engine();
            let held = engine.flight.valid(receipt.token, &receipt.id, now.mono());
            held.map(|held| {
                let lane = engine.lanes.get(held.lane).map(|state| state.lane.clone());
                (held.hash, held.place, held.lane, lane, engine.file(held.place))
            })
        };
        let Some((hash, place, number, Some(lane), file)) = found else { return Ok(None) };
        let Some(bytes) = self.read_back(place, hash, file).await? else { return Ok(None) };
        let stored = entry::decode(&bytes, &lane).map_err(|_| damaged(place))?;
        Ok((stored.message.id == receipt.id).then_some((stored, number)))
    }

    pub(super) fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        let mut engine = self.engine();
        engine.check_open()?;
        engine.now = now;
        let end = engine.lease_end(lease);
        let answers = receipts
            .iter()
            .map(|receipt| match engine.flight.valid(receipt.token, &receipt.id, now.mono()) {
                None => Settled::Lost,
                Some(_) => {
                    engine.flight.extend(receipt.token, end);
                    Settled::Done
                }
            })
            .collect();
        Ok(answers)
    }

    /// Makes claimable what was claimed and not settled in time. Says how many leases had ended.
    pub(super) async fn end_leases(&self, now: Now) -> Result<usize, StoreError> {
        let ended: Vec<(u64, Receipt)> = {
            let mut engine = self.engine();
            if engine.flight.next_end().is_none_or(|end| end > now.mono()) {
                return Ok(0);
            }
            let tokens = engine.flight.ended(now.mono(), LEASES_PER_SWEEP);
            tokens
                .into_iter()
                .filter_map(|token| {
                    let id = engine.flight.get_mut(token)?.id.clone();
                    Some((token, Receipt { shard: 0, token, id }))
                })
                .collect()
        };
        let count = ended.len();
        let outcome = self.lose(now, &ended).await;
        if outcome.is_err() {
            let mut engine = self.engine();
            ended.iter().for_each(|(token, _)| engine.flight.ended_again(*token, now.mono()));
        }
        outcome.map(|()| count)
    }

    async fn lose(&self, now: Now, ended: &[(u64, Receipt)]) -> Result<(), StoreError> {
        let mut entries = Vec::with_capacity(ended.len());
        for (token, receipt) in ended {
            let found = {
                let engine = self.engine();
                engine.flight.get(*token, &receipt.id).map(|held| {
                    let lane = engine.lanes.get(held.lane).map(|state| state.lane.clone());
                    (held.clone(), lane, engine.file(held.place))
                })
            };
            let Some((held, Some(lane), file)) = found else { continue };
            let Some(bytes) = self.read_back(held.place, held.hash, file).await? else { continue };
            let stored = entry::decode(&bytes, &lane).map_err(|_| damaged(held.place))?;
            entries.push((
                *token,
                lost_entry(stored, now.wall(), held.alone, true, held.lane, "its lease ended"),
            ));
        }
        let bytes = entries.iter().map(|(_, entry)| entry.len() + 64).sum();
        self.admitted(bytes, Class::Change).await?;
        let commit = {
            let mut engine = self.engine();
            engine.check_open()?;
            for (token, mut entry) in entries {
                // It may have been settled or extended while its entry was read.
                if engine.flight.get_mut(token).is_none_or(|held| held.lease_end > now.mono()) {
                    continue;
                }
                if let Some(held) = engine.let_go(token) {
                    engine.change(held.hash, held.place, u64::from(held.bytes), &mut entry);
                }
            }
            self.wake(&mut engine);
            engine.journal.commit()
        };
        if ended.is_empty() { Ok(()) } else { self.committed(&commit).await }
    }
}

/// The entry of a message whose claim was lost.
pub(super) fn lost_entry(
    mut stored: Stored,
    at: Timestamp,
    alone: bool,
    counts: bool,
    lane: u32,
    why: &str,
) -> Vec<u8> {
    if counts {
        stored.attempts += 1;
        stored.remember(Attempt::new(at, Outcome::Lost, why));
    }
    stored.maybe_delivered = true;
    stored.lost = if alone { Lost::Alone } else { Lost::InCompany };
    let mut bytes = Vec::with_capacity(512 + stored.message.body.len());
    entry::encode(&stored, lane, &mut bytes);
    bytes
}

fn settle_one(
    engine: &mut Engine,
    now: Now,
    settle: &Settle,
    entry: Option<&mut [u8]>,
    released: &mut Vec<Note>,
) -> Settled {
    let receipt = &settle.receipt;
    if engine.flight.valid(receipt.token, &receipt.id, now.mono()).is_none() {
        return Settled::Lost;
    }
    if entry.is_none() && matches!(settle.verdict, Verdict::Retry { .. } | Verdict::Dead { .. }) {
        return Settled::Lost;
    }
    let Some(held) = engine.let_go(receipt.token) else { return Settled::Lost };
    match &settle.verdict {
        Verdict::Delivered { receipt } => {
            engine.end(
                held.hash,
                held.place,
                u64::from(held.bytes),
                State::Delivered,
                receipt.as_deref(),
                &held.head,
            );
        }
        Verdict::Retry { .. } | Verdict::Dead { .. } => {
            engine.change(held.hash, held.place, u64::from(held.bytes), entry.unwrap_or_default());
        }
        Verdict::HandBack => {
            engine.hand_back(&held);
            released.push(Note {
                hash: held.hash,
                token: receipt.token,
                version: held.version,
                lease_ms: 0,
                client: false,
                alone: held.alone,
                released: true,
            });
        }
    }
    Settled::Done
}
