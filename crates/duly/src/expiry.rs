//! Expires messages that nobody claims.
//!
//! Claims check `max_lateness` before each attempt. Messages that are not claimed, because nobody receives from their
//! queue, their lane is paused or their target is unreachable, are expired here: a bounded number of overdue messages
//! per round, by due time.

use std::{sync::Arc, time::Duration};

use duly_core::{
    Clock, DeadReason, MessageId, Record, State, Store, Timestamp,
    store::{Changed, Query, Settlement, StoreError},
};

use crate::{engine::catch_panic, events::EventBus, seconds};

/// The interval: messages expire late by up to this much.
const EVERY: Duration = seconds(6);
/// The interval for a store on a server.
const EVERY_ELSEWHERE: Duration = seconds(30);
/// The interval while there are more overdue messages than one round reads.
const BACKLOG_EVERY: Duration = seconds(1);
/// The pause after a slow round, as a multiple of its duration.
const PAUSE_FACTOR: u32 = 20;
/// Overdue messages read in one round; the next one continues there.
const PAGE: usize = 4_000;

/// Where the next round continues; from the beginning if `None`.
type Cursor = Option<(Timestamp, MessageId)>;

/// Runs until it is aborted.
pub(crate) async fn run(store: Arc<dyn Store>, clock: Arc<dyn Clock>, events: Arc<EventBus>) {
    let every = if store.durability().is_remote() { EVERY_ELSEWHERE } else { EVERY };
    let (mut cursor, mut pause) = (None, every);
    loop {
        clock.sleep_until(clock.now().mono().saturating_add(pause)).await;
        let began = clock.now().mono();
        match catch_panic(expire_overdue(&*store, &*clock, &events, cursor.clone())).await {
            Ok(Ok(next)) => cursor = next,
            // Overdue messages stay overdue: the next round continues there.
            Ok(Err(error)) => tracing::warn!(%error, "expiry failed"),
            Err(panic) => {
                tracing::error!(panic, "expiry failed");
                cursor = None;
            }
        }
        // A backlog is read faster.
        let every = if cursor.is_some() { every.min(BACKLOG_EVERY) } else { every };
        pause = every.max(clock.now().mono().since(began).saturating_mul(PAUSE_FACTOR));
    }
}

async fn expire_overdue(
    store: &dyn Store,
    clock: &dyn Clock,
    events: &EventBus,
    cursor: Cursor,
) -> Result<Cursor, StoreError> {
    let now = clock.now();
    let query = Query { due_to: Some(now.wall()), after: cursor, limit: PAGE, ..Query::all(State::Pending) };
    let page = store.list(&query).await?;
    let late: Vec<Record> =
        page.records.into_iter().filter(|record| is_too_late(record, now.wall())).collect();
    if !late.is_empty() {
        let batch: Vec<_> =
            late.iter().map(|record| (record.message.id.clone(), record.message.due)).collect();
        let changed = store.expire(now, &batch).await?;
        let done = late.iter().zip(changed).filter(|(_, changed)| matches!(changed, Changed::Done { .. }));
        for (record, _) in done {
            let counters = events.counters.lane(&record.message.lane());
            let dead = Settlement::Dead { reason: DeadReason::Expired, attempt: None };
            events.settled(&counters, &record.message, record.attempts, Duration::ZERO, &dead);
        }
    }
    Ok(page.next)
}

fn is_too_late(record: &Record, now: Timestamp) -> bool {
    let message = &record.message;
    message.max_lateness.is_some_and(|late| now > message.due.saturating_add(late))
}
