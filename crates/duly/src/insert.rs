//! Inserts of messages, counted when the store has answered.

use std::time::Duration;

use duly_core::{
    Lane, MessageId, Now, State, Timestamp,
    store::{Insert, Inserted},
};

use crate::{
    Accepted, Error,
    counters::add,
    engine::EngineHandles,
    events::Event,
    seconds,
    store_monitor::{CallKind, StoreCall},
};

/// A message that is due later needs no hint: the sweep finds it in time.
const HINT_AHEAD: Duration = seconds(10);

impl EngineHandles {
    /// Inserts messages. One result each, in order.
    pub(crate) async fn insert(
        self,
        now: Now,
        batch: Vec<Insert>,
    ) -> Result<Vec<Result<Accepted, Error>>, Error> {
        let sent: Vec<_> = batch
            .iter()
            .map(|insert| (insert.message.id.clone(), insert.message.lane(), insert.message.due))
            .collect();
        let call = self.events.monitor.begin(CallKind::Insert, now.mono());
        let inserted = self.store.insert(now, batch).await;
        drop(call);
        let results = match self.events.observe(StoreCall::Insert, now, inserted) {
            Ok(results) => results,
            Err(error) if error.is_maybe_done() => {
                let unanswered = |(id, _, _): (MessageId, Lane, Timestamp)| {
                    Err(Error::Unanswered { id, error: error.clone() })
                };
                return Ok(sent.into_iter().map(unanswered).collect());
            }
            Err(error) => return Err(error.into()),
        };
        let answer = |((id, lane, due), inserted): ((MessageId, Lane, Timestamp), Inserted)| match inserted {
            Inserted::Accepted => {
                self.record_accepted(now, &id, lane, due);
                Ok(Accepted { id, due, state: State::Pending, duplicate: false, time_kept: false })
            }
            Inserted::Duplicate { due: first, state } => {
                add(&self.events.counters.messages.duplicates, 1);
                Ok(Accepted { id, due: first, state, duplicate: true, time_kept: first != due })
            }
            Inserted::Conflict => Err(Error::IdConflict(id)),
        };
        Ok(sent.into_iter().zip(results).map(answer).collect())
    }

    fn record_accepted(&self, now: Now, id: &MessageId, lane: Lane, due: Timestamp) {
        add(&self.events.counters.messages.accepted, 1);
        if self.events.has_subscribers() {
            self.events.publish(Event::Accepted { id: id.clone(), lane: lane.clone(), due });
        }
        if due <= now.wall().saturating_add(HINT_AHEAD) {
            self.hints.push(lane, due);
        }
    }
}
