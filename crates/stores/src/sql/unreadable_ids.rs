//! Rows whose ids are none any more: somebody changed them. Nobody can ask for such a message. Its row is taken out of its queue, so that
//! it takes no place there.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::{MessageId, Now, store::StoreError};

use super::{
    SqlStore,
    connection::{ServerRow, Session, Statement},
    count::CounterDeltas,
    fault::Fault,
    row::{Bodies, IN_FLIGHT},
    write::{FoundRows, filled},
};

/// More are noted once these are out of their queues.
const NOTED_MAX: usize = 1_000;
/// Rows that are locked by one statement.
const BATCH_MAX: usize = 100;

/// Texts in the place of ids, as reads met them.
#[derive(Debug, Default)]
pub(super) struct UnreadableIds(Mutex<BTreeSet<String>>);

impl UnreadableIds {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, text: String) {
        let mut noted = self.lock();
        if noted.len() < NOTED_MAX {
            noted.insert(text);
        }
    }
}

impl SqlStore {
    /// The id in a column. A text that is none is noted, to be [buried](Self::bury_unreadable).
    pub(super) fn id_in(&self, row: &ServerRow, column: usize) -> Result<Option<MessageId>, Fault> {
        let text = row.text(column)?;
        let id = MessageId::parse(&text).ok();
        if id.is_none() {
            self.writes.unreadable_ids.note(text);
        }
        Ok(id)
    }

    /// Takes the rows that were noted out of their queues, and counts them as damaged. Returns whether there were any.
    pub(super) async fn bury_unreadable(&self, now: Now) -> Result<bool, StoreError> {
        let noted: Vec<String> = self.writes.unreadable_ids.lock().iter().cloned().collect();
        for some in noted.chunks(BATCH_MAX) {
            let buried =
                self.transact(|borrowed| Box::pin(self.bury_texts(borrowed.session, now, some))).await?;
            self.writes.count_damaged(buried);
            let mut left = self.writes.unreadable_ids.lock();
            some.iter().for_each(|text| {
                left.remove(text);
            });
        }
        Ok(!noted.is_empty())
    }

    async fn bury_texts(&self, session: &mut Session, now: Now, texts: &[String]) -> Result<usize, Fault> {
        let slot = self.slots.take();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let mut select = Statement::new(self.dialect(), &Bodies::Without.select());
        select.push_as("FORCE INDEX (PRIMARY) ", "").push("WHERE message_id IN (").bind_all(filled(&texts));
        select.push(") ORDER BY message_id FOR UPDATE SKIP LOCKED");
        let mut found = FoundRows::default();
        found.read(session.rows(select).await?)?;
        found.bad.retain(|bad| bad.lane.is_none() && (bad.waits() || bad.queue_no == Some(IN_FLIGHT)));
        let mut deltas = CounterDeltas::default();
        for bad in &found.bad {
            self.bury(session, now, bad, &mut deltas).await?;
        }
        self.count(session, &slot, deltas).await?;
        Ok(found.bad.len())
    }
}
