//! Reads all that a data folder holds, and changes nothing.

use std::{path::Path, sync::Arc};

use duly_core::{
    MessageId, Now, State, Store,
    store::{Query, StoreError, StoreErrorKind},
};

use super::{EmbeddedStore, Options, manifest, read_only::ReadOnlyDisk, recover::io_error};

/// Messages listed at once.
const PAGE: usize = 1_000;
/// Messages read at once, with their bodies.
const BODIES: usize = 16;
/// Damaged messages listed by id.
const NAMED: usize = 20;

/// The findings in a data folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Messages that were read, finished ones too.
    pub messages: u64,
    /// Messages that cannot be read any more, by what their positions still show.
    pub damaged: u64,
    /// The ids of the first 20 of them, of those whose id can still be read. None if not everything was read.
    pub damaged_ids: Vec<MessageId>,
    /// The first few faults, in words.
    pub faults: Vec<String>,
    /// The log of claims that the manifest names is missing. No message is lost by that.
    pub claims_log_missing: bool,
    /// Not everything was read, because `goes_on` said so.
    pub is_cut: bool,
}

impl Verified {
    /// Whether everything that was read is as it was written.
    pub fn is_sound(&self) -> bool {
        self.damaged == 0 && self.faults.is_empty()
    }

    /// Counts a message that was listed: read, or missing.
    fn count(&mut self, id: &MessageId, is_found: bool) {
        if is_found {
            self.messages += 1;
        } else {
            self.damaged += 1;
            self.fault(format!("message {:?} is listed and cannot be found", id.as_str()));
        }
    }

    fn fault(&mut self, words: String) {
        if self.faults.len() < NAMED && !self.faults.contains(&words) {
            self.faults.push(words);
        }
    }
}

/// Opens the data folder `dir` without changing it, and reads every message that it holds. Nobody may have it open. What keeps the
/// folder from being opened at all is an error; what is wrong with single messages is returned. Stops early if `goes_on`, which gets the
/// number of messages read, returns `false`.
pub async fn verify(
    dir: &Path,
    now: Now,
    goes_on: &mut (dyn FnMut(u64) -> bool + Send),
) -> Result<Verified, StoreError> {
    let is_there = dir.join(manifest::NAME).try_exists();
    if !is_there.map_err(|error| io_error(&format!("reading {}", dir.display()), error))? {
        let what = format!("there is no store in {}", dir.display());
        return Err(StoreError::new(StoreErrorKind::Unavailable, what));
    }
    let options = Options { disk: Arc::new(ReadOnlyDisk::default()), ..Options::default() };
    let store = EmbeddedStore::open(dir, options, now).await?;
    let mut verified = Verified::default();
    for state in [State::Pending, State::InFlight, State::Dead] {
        read_state(&store, state, &mut verified, goes_on).await;
    }
    // An unreadable message is not listed, so it is missing from the count.
    let totals = store.totals().await?;
    let (known, seen) =
        (totals.pending + totals.in_flight + totals.dead, verified.messages + verified.damaged);
    if known > seen && !verified.is_cut {
        verified.damaged += known - seen;
        verified.fault(format!("{} of {known} messages cannot be read", known - seen));
    }
    for state in [State::Delivered, State::Cancelled] {
        read_state(&store, state, &mut verified, goes_on).await;
    }
    let metrics = store.metrics();
    verified.damaged = verified.damaged.max(metrics.damaged);
    verified.claims_log_missing = metrics.claims_log_missing;
    if verified.damaged > 0 && !verified.is_cut {
        // The findings so far stay if another read fails now.
        verified.damaged_ids = name_damaged(&store).await.unwrap_or_default();
    }
    store.abandon();
    Ok(verified)
}

/// Which messages cannot be read: lists leave them out.
async fn name_damaged(store: &EmbeddedStore) -> Result<Vec<MessageId>, StoreError> {
    let shared = store.shared.clone();
    let named = tokio::task::spawn_blocking(move || shared.damaged_ids(NAMED)).await;
    let named = named.map_err(std::io::Error::other).flatten();
    named.map_err(|error| io_error("reading what is damaged", error))
}

async fn read_state(
    store: &EmbeddedStore,
    state: State,
    verified: &mut Verified,
    goes_on: &mut (dyn FnMut(u64) -> bool + Send),
) {
    let mut query = Query { limit: PAGE, ..Query::all(state) };
    loop {
        if verified.is_cut || !goes_on(verified.messages) {
            verified.is_cut = true;
            return;
        }
        let page = match store.list(&query).await {
            Ok(page) => page,
            Err(error) => {
                verified.damaged += 1;
                return verified.fault(error.what);
            }
        };
        let ids: Vec<_> = page.records.into_iter().map(|record| record.message.id).collect();
        for some in ids.chunks(BODIES) {
            read_bodies(store, some, verified).await;
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return,
        }
    }
}

async fn read_bodies(store: &EmbeddedStore, ids: &[MessageId], verified: &mut Verified) {
    if let Ok(records) = store.get(ids).await {
        return ids.iter().zip(records).for_each(|(id, record)| verified.count(id, record.is_some()));
    }
    for id in ids {
        match store.get(std::slice::from_ref(id)).await {
            Ok(records) => verified.count(id, records.iter().any(Option::is_some)),
            Err(error) => {
                verified.damaged += 1;
                verified.fault(format!("message {:?}: {}", id.as_str(), error.what));
            }
        }
    }
}
