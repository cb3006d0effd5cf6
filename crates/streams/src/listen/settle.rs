//! Settling entries: acknowledge, retry, dead letter, release.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use redis::RedisError;

use super::{
    callbacks::{EntriesLost, UndecodableEntry, notify},
    handler::HandlerOutcome,
    processor::{Attempt, Disposition, Isolation, Processor},
};
use crate::{
    EntryId, StartFrom, clock,
    group::{FailedAttempt, FailureOutcome, Lane},
};

/// Waits between tries to record an outcome in Redis.
const SETTLE_RETRY_WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(5)];

/// Ids in one call that releases entries.
const RELEASE_MAX: usize = 500;

/// The consequence of a failed attempt for its entry.
struct Failure {
    why: String,
    /// How long to wait before the retry.
    wait: Duration,
    /// Whether it becomes a dead letter without a retry.
    is_final: bool,
}

impl Processor {
    /// A batch failed as a whole, and any of its entries may be the cause: each is retried alone before a failure counts.
    pub(super) async fn record_batch_failure(
        &self,
        lane: &Arc<Lane>,
        entries: Vec<(EntryId, u32)>,
        why: String,
        attempt: &Attempt,
    ) -> Disposition {
        if let [(id, failures)] = entries.as_slice() {
            return self.record_failure(lane, id, *failures, HandlerOutcome::failed(why), attempt).await;
        }
        tracing::warn!(
            topic = lane.topic,
            group = lane.group,
            entries = entries.len(),
            why,
            "batch failed, entries are retried one by one"
        );
        let ids: Vec<_> = entries.into_iter().map(|(id, _)| id.as_str().to_owned()).collect();
        self.release(lane, &ids).await;
        Disposition::Settled
    }

    /// Makes entries available to every consumer at once. No attempt counts.
    pub(super) async fn release(&self, lane: &Lane, ids: &[String]) {
        for some in ids.chunks(RELEASE_MAX) {
            let released = lane.requeue(&mut self.link.clone(), &lane.consumer, Duration::ZERO, some).await;
            if let Err(error) = released {
                // They are reclaimed once they are idle for long enough.
                tracing::warn!(topic = lane.topic, entries = some.len(), %error, "release failed");
            }
        }
        self.abandon(lane, ids.iter().map(String::as_str));
        self.retry_scheduled.notify_one();
    }

    /// Removes entries from those in flight although they are not settled.
    pub(super) fn abandon<'a>(&self, lane: &Lane, ids: impl Iterator<Item = &'a str>) {
        self.in_flight.remove(lane.priority, ids);
        self.has_unsettled.store(true, Ordering::Release);
    }

    /// Records an attempt that was not done: the entry is retried or becomes a dead letter.
    pub(super) async fn record_failure(
        &self,
        lane: &Lane,
        id: &EntryId,
        failures: u32,
        outcome: HandlerOutcome,
        attempt: &Attempt,
    ) -> Disposition {
        self.meter.record_failure();
        let Some(failure) = self.failure_of(lane, id, failures, outcome) else {
            return Disposition::Settled;
        };
        let mut recorded = None;
        for pause in SETTLE_RETRY_WAITS {
            match self.write_failure(lane, id, &failure, attempt).await {
                Ok(outcome) => {
                    recorded = Some(outcome);
                    break;
                }
                Err(error) => {
                    let (topic, group) = (&lane.topic, &lane.group);
                    tracing::warn!(topic, group, %id, %error, "failure not recorded yet");
                    clock::sleep(pause).await;
                }
            }
        }
        self.log_outcome(lane, id, recorded, &failure.why);
        let Some((outcome, _)) = recorded else {
            self.abandon(lane, std::iter::once(id.as_str()));
            return Disposition::Unsettled;
        };
        self.in_flight.remove(lane.priority, std::iter::once(id.as_str()));
        if outcome == FailureOutcome::Retry {
            self.retry_scheduled.notify_one();
            return Disposition::RetryAfter(failure.wait);
        }
        Disposition::Settled
    }

    fn failure_of(
        &self,
        lane: &Lane,
        id: &EntryId,
        failures: u32,
        outcome: HandlerOutcome,
    ) -> Option<Failure> {
        let wait = self.settings.retry.wait(failures + 1);
        Some(match outcome {
            HandlerOutcome::Done => return None,
            HandlerOutcome::Failed { after, why } => {
                Failure { why, wait: after.unwrap_or(wait), is_final: false }
            }
            HandlerOutcome::Dead(why) => Failure { why, wait, is_final: true },
            HandlerOutcome::Undecodable(raw, reason) => {
                let (topic, group) = (&lane.topic, &lane.group);
                tracing::error!(topic, group, %id, reason, "entry not decodable");
                let notice =
                    UndecodableEntry { event: topic.clone(), id: id.clone(), why: reason, entry: *raw };
                // If the callback panics, the entry is retried and the callback called again.
                let is_final = notify(&self.callbacks.undecodable, &notice);
                Failure { why: format!("it cannot be decoded: {}", notice.why), wait, is_final }
            }
        })
    }

    async fn write_failure(
        &self,
        lane: &Lane,
        id: &EntryId,
        failure: &Failure,
        attempt: &Attempt,
    ) -> Result<(FailureOutcome, u32), RedisError> {
        let Failure { why, wait, is_final } = failure;
        let link = &mut self.link.clone();
        let is_alone = attempt.isolation == Isolation::Alone;
        if *is_final {
            // An attempt of a suspect was counted when it began.
            let about = (id.as_str(), why.as_str(), u32::from(!is_alone));
            return lane.move_to_dlq(link, &lane.consumer, about, &self.settings.dead_letters).await;
        }
        let failed =
            FailedAttempt { id: id.as_str(), why, wait: *wait, alone: is_alone, attempt: &attempt.id };
        lane.fail(link, failed, (&self.settings.retry, &self.settings.dead_letters)).await
    }

    fn log_outcome(&self, lane: &Lane, id: &EntryId, outcome: Option<(FailureOutcome, u32)>, why: &str) {
        let (topic, group) = (&lane.topic, &lane.group);
        match outcome {
            Some((FailureOutcome::Retry, attempts)) => {
                tracing::warn!(topic, group, %id, attempts, why, "handler failed, retry scheduled");
            }
            Some((FailureOutcome::Dead, attempts)) => {
                self.meter.record_dead_letter();
                tracing::error!(topic, group, %id, attempts, why, "entry moved to dead letters");
            }
            Some((FailureOutcome::Lost | FailureOutcome::NotPending, _)) => {
                tracing::warn!(topic, group, %id, why, "handler failed, entry claimed by another consumer");
            }
            Some((FailureOutcome::Trimmed, _)) => self.report_lost(lane, &[id.as_str().to_owned()]),
            None => {
                tracing::error!(topic, group, %id, why, "failure not recorded, entry is retried");
            }
        }
    }

    /// Makes a dead letter of a reclaimed entry whose attempts are used up.
    pub(super) async fn move_to_dlq(&self, lane: &Lane, id: &EntryId, why: &str) -> Disposition {
        let mut link = self.link.clone();
        let about = (id.as_str(), why, 0);
        match lane.move_to_dlq(&mut link, &lane.consumer, about, &self.settings.dead_letters).await {
            Ok(outcome) => {
                self.log_outcome(lane, id, Some(outcome), why);
                self.in_flight.remove(lane.priority, std::iter::once(id.as_str()));
                Disposition::Settled
            }
            Err(error) => {
                tracing::warn!(topic = lane.topic, %id, %error, "move to dead letters failed");
                self.abandon(lane, std::iter::once(id.as_str()));
                Disposition::Unsettled
            }
        }
    }

    /// Acknowledges handled entries, and repeats that until Redis confirms it. They stay in flight meanwhile, so that nobody handles
    /// them again.
    pub(super) async fn acknowledge(&self, lane: &Lane, ids: &[String]) {
        let mut waits = SETTLE_RETRY_WAITS.iter();
        while let Err(error) = lane.ack(&mut self.link.clone(), ids).await {
            let count = ids.len();
            tracing::warn!(topic = lane.topic, count, %error, "ack failed");
            let pause = match (waits.next(), SETTLE_RETRY_WAITS.last()) {
                (Some(pause), _) => *pause,
                (None, Some(longest)) if !*self.stop.borrow() => *longest,
                // The listener stops: the entries are delivered again.
                _ => return self.abandon(lane, ids.iter().map(String::as_str)),
            };
            clock::sleep(pause).await;
        }
        self.in_flight.remove(lane.priority, ids.iter().map(String::as_str));
    }

    /// Reports entries that were trimmed before they were handled. They are no longer pending in the group.
    pub(super) fn report_lost(&self, lane: &Lane, ids: &[String]) {
        if ids.is_empty() {
            return;
        }
        let (event, group) = (lane.topic.clone(), lane.group.clone());
        tracing::error!(event, group, ?ids, "entries trimmed before they were handled");
        self.meter.record_lost(ids.len());
        let ids = ids.iter().cloned().map(EntryId::new).collect();
        notify(&self.callbacks.lost, &EntriesLost { event, group, ids });
    }

    /// Logs a failed read, and creates the group again if it is missing.
    pub(super) async fn handle_read_error(&self, lane: &Lane, error: &RedisError) {
        let (topic, group) = (&lane.topic, &lane.group);
        // Somebody deleted the stream, or all of Redis.
        if error.code() == Some("NOGROUP") {
            tracing::error!(topic, group, %error, "consumer group missing, creating it");
            // From the oldest entry: whatever is in the stream now was sent after the group was lost.
            if let Err(error) = lane.create(&mut self.link.clone(), StartFrom::Oldest).await {
                tracing::warn!(topic, group, %error, "consumer group creation failed");
            }
            return;
        }
        tracing::warn!(topic, group, %error, "read failed");
    }
}
