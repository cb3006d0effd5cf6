//! The ledger against what arrived.

use std::collections::{BTreeMap, HashMap};

use crate::{
    bed::Quiet,
    ledger::{Cancel, Entry},
    targets::{Arrival, Arrivals},
};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    accepted: u64,
    cancelled: u64,
    delivered: u64,
    unknown: u64,
    /// Accepted, neither delivered nor cancelled.
    pub(crate) lost: Vec<String>,
    /// Ids that stand in a stream more than once.
    pub(crate) twice_in_streams: Vec<String>,
    /// Copies at the webhook beyond the first.
    pub(crate) twice_at_hook: usize,
    /// Delivered although a cancel was answered with "done".
    pub(crate) after_cancel: Vec<String>,
    /// Cancels of something accepted that were answered with "no such message".
    pub(crate) missing: Vec<String>,
}

impl Quiet {
    /// I1 to I5 of a case in which Redis lost nothing. `twice_max`: how many copies the faults may leave at the webhook.
    pub(crate) async fn check(self, twice_max: usize) {
        let found = self.query();
        self.report(&found).await;
        let Comparison { lost, twice_in_streams, after_cancel, missing, .. } = &found;
        assert!(lost.is_empty(), "accepted, and neither delivered nor cancelled: {lost:?}");
        assert!(twice_in_streams.is_empty(), "in a stream more than once: {twice_in_streams:?}");
        assert!(found.twice_at_hook <= twice_max, "{} copies at the webhook", found.twice_at_hook);
        assert!(after_cancel.is_empty(), "delivered after a cancel that was done: {after_cancel:?}");
        assert!(missing.is_empty(), "accepted, and unknown to a cancel: {missing:?}");
        for totals in &self.totals {
            let count = |name: &str| totals[name].as_u64().unwrap();
            assert_eq!((count("accepted"), count("dead")), (found.accepted, 0), "{totals}");
            assert_eq!(count("delivered") + count("cancelled"), found.accepted, "{totals}");
        }
    }

    /// What holds whatever is lost: never early, only what was sent, nothing at a wrong place, and a ledger that balances.
    pub(crate) fn query(&self) -> Comparison {
        let mut found = Comparison::default();
        let ledger = self.ledger.all();
        for (sink, arrivals) in self.by_sink() {
            for (id, copies) in arrivals {
                let entry = ledger.get(id).unwrap_or_else(|| panic!("{id} was never sent"));
                assert_eq!(entry.sink, sink, "{id} arrived at the wrong place");
                copies.iter().for_each(|copy| check_time(id, entry, copy));
                match sink {
                    "hook" => found.twice_at_hook += copies.len() - 1,
                    _ if copies.len() > 1 => found.twice_in_streams.push(format!("{id}: {copies:?}")),
                    _ => {}
                }
            }
        }
        for (id, entry) in &ledger {
            assert!(entry.accepted.is_some(), "senders go on until {id} is accepted");
            let delivered = self.by_sink()[entry.sink].contains_key(id);
            found.accepted += 1;
            found.unknown += u64::from(entry.unknown);
            found.delivered += u64::from(delivered);
            found.cancelled += u64::from(matches!(entry.cancel, Cancel::Done | Cancel::Maybe));
            match entry.cancel {
                Cancel::None if !delivered => found.lost.push(id.clone()),
                Cancel::Missing => found.missing.push(id.clone()),
                Cancel::Done if delivered => found.after_cancel.push(id.clone()),
                _ => {}
            }
        }
        for totals in &self.totals {
            assert_eq!(totals["balanced"], true, "{totals}");
        }
        found
    }

    fn by_sink(&self) -> BTreeMap<&'static str, &Arrivals> {
        BTreeMap::from([("here", &self.here), ("there", &self.there), ("hook", &self.hook)])
    }

    /// How late the latest first copy was.
    fn latest_ms(&self) -> u64 {
        let late =
            |copies: &Vec<Arrival>| copies.iter().map(|copy| copy.at_ms.saturating_sub(copy.due_ms)).min();
        self.by_sink()
            .values()
            .flat_map(|arrivals| arrivals.values().filter_map(late))
            .max()
            .unwrap_or_default()
    }

    /// One line, and what the nodes know about what should not be.
    pub(crate) async fn report(&self, found: &Comparison) {
        let Comparison {
            accepted, cancelled, delivered, unknown, lost, twice_in_streams, twice_at_hook, ..
        } = found;
        println!(
            "{}: {accepted} accepted, {delivered} delivered, {cancelled} cancelled, {unknown} tries without an answer; \
             {} twice in streams, {twice_at_hook} at the webhook, {} lost; up to {} ms late; quiet after {} ms",
            self.case,
            twice_in_streams.len(),
            lost.len(),
            self.latest_ms(),
            self.after_ms,
        );
        let wrong = lost.iter().chain(&found.after_cancel).chain(&found.missing);
        for id in wrong.take(5) {
            let known = self.nodes[0].get(&format!("/v1/messages/{id}")).await;
            println!("  {id}: {:?}; the nodes: {known:?}", self.ledger.all().get(id));
        }
        let hook: HashMap<_, _> = self.hook.iter().filter(|(_, copies)| copies.len() > 1).take(3).collect();
        if !hook.is_empty() {
            println!("  more than once at the webhook, for example: {hook:?}");
        }
    }
}

/// Never before its time, and that is the time that its sender was told, or later than it could have been asked for.
fn check_time(id: &str, entry: &Entry, copy: &Arrival) {
    assert!(copy.at_ms >= copy.due_ms, "{id} came early: {copy:?}");
    assert!(copy.due_ms >= entry.asked_ms + entry.delay_ms, "{id} was due too early: {copy:?} of {entry:?}");
    if let Some(accepted) = entry.accepted {
        assert_eq!(copy.due_ms, accepted.due_ms, "{id}: {copy:?} of {entry:?}");
    }
}
