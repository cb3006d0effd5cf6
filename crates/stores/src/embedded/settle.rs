//! `settle` and `extend`, and the loss of claims whose lease ends.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use duly_core::{
    Attempt, LeaseLoss, Now, Outcome, Receipt, Timestamp,
    store::{Settle, Settled, Settlement, StoreError, StoreErrorKind},
};

use super::{
    SharedEngine,
    claim_log::ClaimRecord,
    ended::EndKind,
    engine::{Class, Engine},
    entry::{self, Peek, Stored},
    in_flight::{ClaimedMessage, Loss},
    journal::Commit,
    options::PIECE_BYTES,
};

/// How many ended leases one sweep deals with.
const LEASES_PER_SWEEP: usize = 1000;
/// Bytes of the journal for a settled message besides its new entry, about.
const SETTLE_GUESS: usize = 512;
/// The same for a lost one.
const LOST_GUESS: usize = 64;

impl SharedEngine {
    pub(super) async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        // Room for the whole batch is asked for first: a batch must not be settled in part because there is no room for the rest.
        self.admitted(self.bytes_to_settle(&batch), Class::Change).await?;
        let mut answers = Vec::with_capacity(batch.len());
        let mut last = None;
        while answers.len() < batch.len() {
            let settled = self.settle_piece(now, &batch[answers.len()..], &mut answers).await;
            let were_some = answers.contains(&Settled::Done);
            last = Some(settled.map_err(|error| if were_some { error.in_part() } else { error })?);
        }
        if let Some(commit) = last
            && batch.iter().any(|settle| settle.settlement != Settlement::Release)
        {
            self.committed(&commit).await?;
        }
        Ok(answers)
    }

    /// About what a batch adds to the journal.
    fn bytes_to_settle(&self, batch: &[Settle]) -> usize {
        let engine = self.engine();
        let bytes = |settle: &Settle| match settle.settlement {
            Settlement::Retry { .. } | Settlement::Defer { .. } | Settlement::Dead { .. } => engine
                .in_flight
                .get(settle.receipt.token, &settle.receipt.id)
                .map_or(0, |held| held.bytes as usize),
            Settlement::Delivered { .. } | Settlement::Release => 0,
        };
        batch.iter().map(|settle| bytes(settle) + SETTLE_GUESS).sum()
    }

    /// Settles as many of a batch as may be in memory at a time.
    async fn settle_piece(
        &self,
        now: Now,
        batch: &[Settle],
        answers: &mut Vec<Settled>,
    ) -> Result<Arc<Commit>, StoreError> {
        let mut rewritten = self.rewrite(now, batch).await?;
        let bytes = rewritten.iter().map(|entry| entry.as_ref().map_or(0, Vec::len) + SETTLE_GUESS).sum();
        self.admitted(bytes, Class::Change).await?;
        let mut released = Vec::new();
        let commit = {
            let mut engine = self.engine();
            engine.check_open()?;
            if engine.tick(now) {
                self.background.notify_one();
            }
            answers.extend(batch.iter().zip(&mut rewritten).map(|(settle, entry)| {
                settle_one(&mut engine, now, settle, entry.as_deref_mut(), &mut released)
            }));
            self.wake(&mut engine);
            engine.journal.commit()
        };
        if let Err(error) = self.claims.write(released) {
            // Only the count of a try is at stake, and only if the process dies now.
            tracing::warn!(%error, "release failed");
        }
        Ok(commit)
    }

    /// The new entries of messages that are retried, deferred or dead, and the heads of delivered messages that are not in memory.
    /// Stops after the entry with which a piece is full.
    async fn rewrite(&self, now: Now, batch: &[Settle]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let needs: Vec<bool> = {
            let engine = self.engine();
            let large = |receipt: &Receipt| {
                let held = engine.in_flight.get(receipt.token, &receipt.id);
                held.is_some_and(|held| held.head.is_empty())
            };
            let needs = |settle: &Settle| match &settle.settlement {
                Settlement::Retry { .. } | Settlement::Defer { .. } | Settlement::Dead { .. } => true,
                Settlement::Delivered { .. } => large(&settle.receipt),
                Settlement::Release => false,
            };
            batch.iter().map(needs).collect()
        };
        let mut entries = Vec::with_capacity(batch.len());
        let mut bytes = 0;
        for (settle, needs) in batch.iter().zip(needs) {
            if bytes >= PIECE_BYTES {
                break;
            }
            let entry = if needs { self.rewrite_one(now, settle).await } else { Ok(None) };
            entries.push(match entry {
                Err(error) if error.kind == StoreErrorKind::Closed => return Err(error),
                Err(error) if error.kind == StoreErrorKind::Damaged => {
                    // Only this message is given up, not the whole batch.
                    self.give_up(settle.receipt.token, now, &error);
                    None
                }
                // Its claim is lost, and it is claimable again when the lease ends. The others do not wait for the disk.
                Err(error) => {
                    tracing::warn!(id = %settle.receipt.id, %error, "message unreadable; claim lost");
                    None
                }
                Ok(entry) => {
                    bytes += entry.as_ref().map_or(0, Vec::len);
                    entry
                }
            });
        }
        Ok(entries)
    }

    async fn rewrite_one(&self, now: Now, settle: &Settle) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((mut stored, data, lane)) = self.held_entry(&settle.receipt, now).await? else {
            return Ok(None);
        };
        let note = |stored: &mut Stored, attempt: &Attempt| {
            if attempt.outcome.counts() {
                stored.attempts = stored.attempts.saturating_add(1);
            }
            stored.remember(attempt.clone());
        };
        match &settle.settlement {
            Settlement::Retry { at, attempt } => {
                note(&mut stored, attempt);
                stored.lost = LeaseLoss::None;
                stored.ready = (*at).max(stored.message.due);
            }
            Settlement::Defer { at } => stored.ready = (*at).max(stored.message.due),
            Settlement::Dead { reason, attempt } => {
                if let Some(attempt) = attempt {
                    note(&mut stored, attempt);
                }
                stored.lost = LeaseLoss::None;
                stored.dead = Some((*reason, now.wall()));
            }
            // The head as it is stored: the end of a message must have the version of the entry that it ends.
            Settlement::Delivered { .. } | Settlement::Release => {
                return Ok(Peek::framed(&data).ok().map(|peek| peek.head().to_vec()));
            }
        }
        let mut bytes = Vec::with_capacity(512 + stored.message.body.len());
        entry::encode(&stored, lane, &mut bytes);
        Ok(Some(bytes))
    }

    /// The entry of a claimed message and the number of its lane, if its lease has not ended.
    async fn held_entry(
        &self,
        receipt: &Receipt,
        now: Now,
    ) -> Result<Option<(Stored, Bytes, u32)>, StoreError> {
        let found = {
            let engine = self.engine();
            let held = engine.in_flight.valid(receipt.token, &receipt.id, now.mono());
            held.map(|held| {
                let lane = engine.lanes.get(held.lane).map(|state| state.lane().clone());
                (held.hash, held.position, held.lane, lane, engine.file(held.position))
            })
        };
        let Some((hash, position, number, Some(lane), file)) = found else { return Ok(None) };
        let Some((stored, data)) = self.load(None, position, hash, file, &lane).await? else {
            return Ok(None);
        };
        Ok((stored.message.id == receipt.id).then_some((stored, data, number)))
    }

    pub(super) fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        let mut engine = self.engine();
        engine.check_open()?;
        engine.set_now(now);
        let end = engine.lease_end(lease);
        let answers = receipts
            .iter()
            .map(|receipt| match engine.in_flight.valid(receipt.token, &receipt.id, now.mono()) {
                None => Settled::Lost,
                Some(_) => {
                    engine.in_flight.extend(receipt.token, end);
                    Settled::Done
                }
            })
            .collect();
        Ok(answers)
    }

    /// Makes messages claimable again whose leases have ended. Returns how many there were.
    pub(super) async fn end_leases(&self, now: Now) -> Result<usize, StoreError> {
        let ended: Vec<(u64, Receipt)> = {
            let mut engine = self.engine();
            if engine.in_flight.next_end().is_none_or(|end| end > now.mono()) {
                return Ok(0);
            }
            let tokens = engine.in_flight.ended(now.mono(), LEASES_PER_SWEEP);
            tokens
                .into_iter()
                .filter_map(|token| {
                    let id = engine.in_flight.get_mut(token)?.id.clone();
                    Some((token, Receipt { shard: 0, token, id }))
                })
                .collect()
        };
        self.lose_or_wait(now, &ended).await.map(|()| ended.len())
    }

    /// Loses claims whose leases have ended. If that fails, the next sweep tries again.
    async fn lose_or_wait(&self, now: Now, ended: &[(u64, Receipt)]) -> Result<(), StoreError> {
        let outcome = self.lose(now, ended).await;
        if outcome.is_err() {
            let mut engine = self.engine();
            ended.iter().for_each(|(token, _)| engine.in_flight.recheck_now(*token, now.mono()));
        }
        outcome
    }

    async fn lose(&self, now: Now, ended: &[(u64, Receipt)]) -> Result<(), StoreError> {
        let mut rest = ended;
        let mut last = None;
        while !rest.is_empty() {
            let (lost, commit) = self.lose_piece(now, rest).await?;
            rest = &rest[lost..];
            last = Some(commit);
        }
        match last {
            Some(commit) => self.committed(&commit).await,
            None => Ok(()),
        }
    }

    /// Loses as many of the claims as may be in memory at a time, and says how many.
    async fn lose_piece(
        &self,
        now: Now,
        ended: &[(u64, Receipt)],
    ) -> Result<(usize, Arc<Commit>), StoreError> {
        let mut entries = Vec::new();
        let mut unsent = Vec::new();
        let (mut seen, mut bytes) = (0, 0);
        for (token, receipt) in ended {
            if bytes >= PIECE_BYTES {
                break;
            }
            seen += 1;
            let found = {
                let engine = self.engine();
                engine.in_flight.get(*token, &receipt.id).map(|held| {
                    let lane = engine.lanes.get(held.lane).map(|state| state.lane().clone());
                    (held.clone(), lane, engine.file(held.position))
                })
            };
            let Some((held, Some(lane), file)) = found else { continue };
            match self.load(None, held.position, held.hash, file, &lane).await {
                // Its entry was never read, so nobody ever received it.
                Ok(Some(_)) if held.version == 0 => unsent.push(*token),
                Ok(Some((stored, _))) => {
                    let entry = lost_entry(stored, now.wall(), &held);
                    bytes += entry.len() + LOST_GUESS;
                    entries.push((*token, entry));
                }
                Ok(None) => {}
                Err(error) if error.kind == StoreErrorKind::Closed => return Err(error),
                Err(error) => {
                    let over = |held: &mut ClaimedMessage| held.lease_end <= now.mono();
                    let is_over = self.engine().in_flight.get_mut(*token).is_some_and(over);
                    if is_over {
                        self.give_up(*token, now, &error);
                    }
                }
            }
        }
        self.admitted(bytes, Class::Change).await?;
        let mut engine = self.engine();
        engine.check_open()?;
        for token in unsent {
            if let Some(held) = engine.end_claim(token) {
                engine.release(&held);
            }
        }
        for (token, mut entry) in entries {
            // It was perhaps settled or extended while its entry was read.
            if engine.in_flight.get_mut(token).is_none_or(|held| held.lease_end > now.mono()) {
                engine.in_flight.recheck_now(token, now.mono());
                continue;
            }
            if let Some(held) = engine.end_claim(token) {
                engine.change(held.hash, held.position, u64::from(held.bytes), &mut entry);
            }
        }
        self.wake(&mut engine);
        Ok((seen, engine.journal.commit()))
    }
}

/// The entry of a message whose claim was lost.
fn lost_entry(mut stored: Stored, at: Timestamp, held: &ClaimedMessage) -> Vec<u8> {
    let why = match held.loss {
        Loss::Lease => Some("its lease ended"),
        Loss::Process => Some("the process ended with the message in hand"),
        Loss::ProcessByOther => None,
    };
    if let Some(why) = why {
        stored.attempts = stored.attempts.saturating_add(1);
        stored.remember(Attempt::new(at, Outcome::Lost, why));
    }
    stored.maybe_delivered = true;
    stored.lost = if held.alone || held.only { LeaseLoss::Alone } else { LeaseLoss::InBatch };
    let mut bytes = Vec::with_capacity(512 + stored.message.body.len());
    entry::encode(&stored, held.lane, &mut bytes);
    bytes
}

fn settle_one(
    engine: &mut Engine,
    now: Now,
    settle: &Settle,
    entry: Option<&mut [u8]>,
    released: &mut Vec<ClaimRecord>,
) -> Settled {
    let receipt = &settle.receipt;
    if engine.in_flight.valid(receipt.token, &receipt.id, now.mono()).is_none() {
        return Settled::Lost;
    }
    let is_rewritten = matches!(
        settle.settlement,
        Settlement::Retry { .. } | Settlement::Defer { .. } | Settlement::Dead { .. }
    );
    let is_large = engine.in_flight.get(receipt.token, &receipt.id).is_some_and(|held| held.head.is_empty());
    let is_delivered = matches!(settle.settlement, Settlement::Delivered { .. });
    if entry.is_none() && (is_rewritten || (is_delivered && is_large)) {
        return Settled::Lost;
    }
    let Some(held) = engine.end_claim(receipt.token) else { return Settled::Lost };
    match &settle.settlement {
        Settlement::Delivered { receipt } => {
            let head = if held.head.is_empty() { entry.as_deref().unwrap_or_default() } else { &held.head };
            let bytes = u64::from(held.bytes);
            engine.end(held.hash, held.position, bytes, EndKind::Delivered, receipt.as_deref(), head);
        }
        Settlement::Retry { .. } | Settlement::Defer { .. } | Settlement::Dead { .. } => {
            engine.change(held.hash, held.position, u64::from(held.bytes), entry.unwrap_or_default());
        }
        Settlement::Release => {
            engine.release(&held);
            released.push(ClaimRecord::released(receipt.token, &held));
        }
    }
    Settled::Done
}

#[cfg(test)]
mod tests;
