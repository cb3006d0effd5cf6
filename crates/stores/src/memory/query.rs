//! Looks that change nothing.

use duly_core::{
    Body, Lane, MessageId, Now, Record, Timestamp,
    store::{LaneStatus, Page, Query, Sweep, Totals},
};

use super::state::StoreState;

impl StoreState {
    pub(super) fn get(&self, id: &MessageId) -> Option<Record> {
        self.entries.get(id).map(|entry| entry.record.clone())
    }

    pub(super) fn list(&self, query: &Query) -> Page {
        let mut found: Vec<&Record> = self
            .entries
            .values()
            .map(|entry| &entry.record)
            .filter(|record| record.state == query.state && query.matches(&record.message))
            .collect();
        found.sort_by(|a, b| (a.message.due, &a.message.id).cmp(&(b.message.due, &b.message.id)));
        let fitting = Page::fitting(found.iter().copied()).min(query.limit);
        let more = found.len() > fitting;
        found.truncate(fitting);
        let last = found.last().map(|record| (record.message.due, record.message.id.clone()));
        Page::new(found.into_iter().cloned().map(without_body).collect(), last.filter(|_| more))
    }

    pub(super) fn lanes(&self, now: Now) -> Vec<LaneStatus> {
        let status = self.lanes.iter().map(|(lane, state)| {
            let due = || state.waiting.iter().take_while(|(ready, ..)| *ready <= now.wall());
            let mut status = LaneStatus::empty(lane.clone());
            (status.paused, status.in_flight, status.dead) = (state.paused, state.in_flight, state.dead);
            status.pending = state.waiting.len() as u64;
            status.ready = due().count() as u64;
            status.oldest_ready = due().next().map(|(ready, ..)| *ready);
            status
        });
        status.filter(|lane| lane.paused || lane.pending + lane.in_flight + lane.dead > 0).collect()
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Vec<u64> {
        let mut counts = vec![0; buckets];
        let span = to.since(from).as_millis();
        if span == 0 || buckets == 0 {
            return counts;
        }
        for (at, count) in self.forecast.range(from..to) {
            let bucket = at.since(from).as_millis() * buckets as u128 / span;
            counts[bucket as usize] += count;
        }
        counts
    }

    pub(super) fn sweep(&self, lanes: &[Lane]) -> Sweep {
        Sweep {
            next: lanes.iter().filter_map(|lane| Some((lane.clone(), self.next_of(lane)?))).collect(),
            next_lease_end: self.leases.first().map(|(end, _)| *end),
            ..Sweep::default()
        }
    }

    /// When the first of the lane may be claimed; a paused one gives nothing at any time.
    pub(super) fn next_of(&self, lane: &Lane) -> Option<Timestamp> {
        let lane = self.lanes.get(lane).filter(|lane| !lane.paused)?;
        lane.waiting.first().map(|(ready, ..)| *ready)
    }
}

fn without_body(mut record: Record) -> Record {
    record.message.body = Body::default();
    record
}
