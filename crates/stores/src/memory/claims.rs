//! Leases: how they begin and the three ways they end: settled, run out, lost with the process.

use std::time::Duration;

use duly_core::{
    Attempt, Body, LeaseLoss, MessageId, Monotonic, Now, Outcome, Receipt, Record, State,
    store::{Claim, ClaimBudget, Claimed, Holder, LeasedMessage, Settle, Settled, Settlement},
};

use super::state::{Entry, Lease, StoreState};

/// The store is one shard.
const SHARD: u16 = 0;

impl StoreState {
    pub(super) fn claim(&mut self, now: Now, claim: &Claim) -> Claimed {
        let ids = self.select(now, claim);
        let alone = claim.holder.holds_alone(ids.len());
        let messages = ids.iter().filter_map(|id| self.lease(now, claim, id, alone)).collect();
        Claimed { messages, next: self.next_of(&claim.lane) }
    }

    /// The ids to claim now: every message before the first suspect, or that suspect alone.
    fn select(&self, now: Now, claim: &Claim) -> Vec<MessageId> {
        let Some(lane) = self.lanes.get(&claim.lane).filter(|lane| !lane.paused) else { return Vec::new() };
        let was_lost =
            |id: &MessageId| self.entries.get(id).is_some_and(|entry| entry.lost != LeaseLoss::None);
        let mut due = lane
            .waiting
            .iter()
            .take_while(|(ready, ..)| *ready <= now.wall())
            .map(|(.., id)| id)
            .take(claim.limit)
            .peekable();
        let bytes = |id: &MessageId| self.entries.get(id).map_or(0, |entry| entry.record.message.bytes());
        let mut budget = ClaimBudget::default();
        match due.peek() {
            Some(first) if was_lost(first) => vec![(*first).clone()],
            _ => due.take_while(|id| !was_lost(id) && budget.takes(bytes(id))).cloned().collect(),
        }
    }

    fn lease(&mut self, now: Now, claim: &Claim, id: &MessageId, alone: bool) -> Option<LeasedMessage> {
        let mut entry = self.take(id)?;
        self.last_token += 1;
        let token = self.last_token;
        entry.record.state = State::InFlight;
        entry.lease = Some(lease_from(now, claim.lease, token, claim.holder, alone));
        let leased = LeasedMessage {
            message: entry.record.message.clone(),
            receipt: Receipt { shard: SHARD, token, id: id.clone() },
            ready: entry.record.ready,
            attempt: entry.record.attempts.saturating_add(1),
            lost: entry.lost,
            lost_at: Attempt::lost_at(&entry.record.history),
            fence: None,
        };
        self.put(entry);
        Some(leased)
    }

    /// Takes the entry out if the receipt's claim is the one that holds it.
    fn take_leased(&mut self, receipt: &Receipt) -> Option<(Entry, Lease)> {
        let lease = self.entries.get(&receipt.id)?.lease?;
        if lease.token != receipt.token || receipt.shard != SHARD {
            return None;
        }
        self.take(&receipt.id).map(|entry| (entry, lease))
    }

    pub(super) fn settle(&mut self, now: Now, settle: Settle) -> Settled {
        let Some((mut entry, _)) = self.take_leased(&settle.receipt) else { return Settled::Lost };
        entry.lease = None;
        let record = &mut entry.record;
        record.state = State::Pending;
        match settle.settlement {
            // As it was before the claim: whatever it is suspected of, it still is.
            Settlement::Release => {}
            Settlement::Defer { at } => record.ready = at.max(record.message.due),
            Settlement::Retry { at, attempt } => {
                // Wall time may have stepped back behind the due time since the claim.
                record.ready = at.max(record.message.due);
                record_attempt(record, attempt);
                entry.lost = LeaseLoss::None;
            }
            Settlement::Delivered { receipt } => {
                record.state = State::Delivered;
                record.ended = Some(now.wall());
                record.message.body = Body::default();
                record.receipt = receipt;
                record_attempt(record, Attempt::new(now.wall(), Outcome::Delivered, ""));
                self.totals.delivered += 1;
            }
            Settlement::Dead { reason, attempt } => {
                record.state = State::Dead;
                record.ended = Some(now.wall());
                record.reason = Some(reason);
                attempt.into_iter().for_each(|attempt| record_attempt(record, attempt));
            }
        }
        self.put(entry);
        Settled::Done
    }

    pub(super) fn extend(&mut self, now: Now, receipt: &Receipt, span: Duration) -> Settled {
        let Some((mut entry, lease)) = self.take_leased(receipt) else { return Settled::Lost };
        entry.lease = Some(lease_from(now, span, lease.token, lease.holder, lease.alone));
        self.put(entry);
        Settled::Done
    }

    /// Ends the leases that ran out; says how many.
    pub(super) fn end_leases(&mut self, now: Now) -> usize {
        let out = |end: Monotonic| end <= now.mono();
        let ids: Vec<_> =
            self.leases.iter().take_while(|(end, _)| out(*end)).map(|(_, id)| id.clone()).collect();
        for id in &ids {
            self.lose(now, id, "the lease ran out");
        }
        ids.len()
    }

    /// A claim that nobody settled: counted, and under suspicion.
    fn lose(&mut self, now: Now, id: &MessageId, why: &str) {
        let Some(mut entry) = self.take(id) else { return };
        let alone = entry.lease.take().is_some_and(|lease| lease.alone) || entry.lost != LeaseLoss::None;
        entry.record.state = State::Pending;
        record_attempt(&mut entry.record, Attempt::new(now.wall(), Outcome::Lost, why));
        // What was lost before had been claimed alone.
        entry.lost = if alone { LeaseLoss::Alone } else { LeaseLoss::InBatch };
        self.put(entry);
    }

    /// The process died: what it held is lost. If a suspect was among it, the suspect is the cause.
    pub(super) fn restart(&mut self, now: Now) {
        let ids: Vec<_> = self.leases.iter().map(|(_, id)| id.clone()).collect();
        let held = |id: &MessageId| self.entries.get(id).and_then(|entry| Some((entry.lost, entry.lease?)));
        let of_process: Vec<_> = ids
            .iter()
            .filter_map(|id| held(id).map(|(lost, lease)| (id, lost, lease)))
            .filter(|(.., lease)| lease.holder == Holder::Process)
            .map(|(id, lost, _)| (id.clone(), lost != LeaseLoss::None))
            .collect();
        let suspect_held = of_process.iter().any(|(_, suspect)| *suspect);
        for (id, suspect) in of_process {
            if suspect || !suspect_held {
                self.lose(now, &id, "the process ended");
            } else {
                self.release_with_doubt(&id);
            }
        }
        for id in ids {
            self.rebase_lease(now, &id);
        }
    }

    /// It was in flight when another one killed the process: nothing counts, but nobody knows whether it arrived.
    fn release_with_doubt(&mut self, id: &MessageId) {
        let Some(mut entry) = self.take(id) else { return };
        entry.lease = None;
        entry.lost = LeaseLoss::InBatch;
        entry.record.state = State::Pending;
        entry.record.maybe_delivered = true;
        self.put(entry);
    }

    /// Puts a client's lease on the new process's monotonic clock.
    fn rebase_lease(&mut self, now: Now, id: &MessageId) {
        if self.entries.get(id).is_none_or(|entry| entry.lease.is_none()) {
            return;
        }
        let Some(mut entry) = self.take(id) else { return };
        if let Some(lease) = &mut entry.lease {
            let rest = lease.end_wall.since(now.wall()).min(lease.span);
            lease.end = now.mono().saturating_add(rest);
        }
        self.put(entry);
    }
}

fn lease_from(now: Now, span: Duration, token: u64, holder: Holder, alone: bool) -> Lease {
    let (end, end_wall) = (now.mono().saturating_add(span), now.wall().saturating_add(span));
    Lease { token, holder, alone, end, end_wall, span }
}

/// Writes a try into the message's life.
fn record_attempt(record: &mut Record, attempt: Attempt) {
    record.attempts = record.attempts.saturating_add(u32::from(attempt.outcome.counts()));
    record.maybe_delivered |= attempt.outcome.maybe_delivered();
    Attempt::remember(&mut record.history, attempt);
}
