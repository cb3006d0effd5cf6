//! What is too late is given up although nobody asks for it.
//!
//! A claim looks at `max_lateness` before each try. What nobody claims, because nobody receives from its queue, its lane is paused
//! or its target is away, is found here: a bounded look at what is overdue, by due time.

use std::{sync::Arc, time::Duration};

use duly_core::{
    Clock, DeadReason, MessageId, Record, State, Store, Timestamp,
    store::{Changed, Query, Settlement, StoreError},
};

use crate::{engine::caught, events::EventBus, seconds};

/// How often is looked: what is too late is given up so much later, unless very much is overdue.
const EVERY: Duration = seconds(6);
/// The same where the store is a server: an idle node asks it seldom.
const EVERY_ELSEWHERE: Duration = seconds(30);
/// The same while a look did not come to the end of what is overdue.
const BACKLOG_EVERY: Duration = seconds(1);
/// A look that took long is followed by so many times its length without one: what is overdue must not take the time of what is due.
const PAUSE_FACTOR: u32 = 20;
/// One look reads at most so many messages that are overdue; the next one goes on there.
const PAGE: usize = 4_000;

/// Where the next look goes on; from the beginning if `None`.
type Cursor = Option<(Timestamp, MessageId)>;

/// Looks until it is aborted.
pub(crate) async fn watch(store: Arc<dyn Store>, clock: Arc<dyn Clock>, events: Arc<EventBus>) {
    let every = if store.durability().is_elsewhere() { EVERY_ELSEWHERE } else { EVERY };
    let (mut cursor, mut pause) = (None, every);
    loop {
        clock.sleep_until(clock.now().mono().saturating_add(pause)).await;
        let began = clock.now().mono();
        match caught(expire_overdue(&*store, &*clock, &events, cursor.clone())).await {
            Ok(Ok(next)) => cursor = next,
            // What is too late stays so: the next look goes on there.
            Ok(Err(error)) => tracing::warn!(%error, "expiry failed"),
            Err(panic) => {
                tracing::error!(panic, "expiry failed");
                cursor = None;
            }
        }
        // What lies behind a long backlog is not left for another day.
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
            let tally = events.tally.lane(&record.message.lane());
            let dead = Settlement::Dead { reason: DeadReason::Expired, attempt: None };
            events.settled(&tally, &record.message, record.attempts, Duration::ZERO, &dead);
        }
    }
    Ok(page.next)
}

fn is_too_late(record: &Record, now: Timestamp) -> bool {
    let message = &record.message;
    message.max_lateness.is_some_and(|late| now > message.due.saturating_add(late))
}
