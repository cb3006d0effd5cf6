//! The rows of a claim, as many as fit by their bytes.
//!
//! The database returns the size of a body only with the row. So small bodies come along with it, and large ones are read afterwards, as
//! many as one claim gives.

use std::collections::{BTreeSet, HashMap};

use duly_core::{Body, MessageId, store::ClaimBudget};

use super::{
    SqlStore,
    connection::{Session, Statement},
    fault::Fault,
    row::{COLUMNS, Row},
    text::kind_of,
    write::{FoundRows, lists},
};
use crate::shared::claim_order::ClaimOrder;

/// A body of up to so many bytes comes along with its row: of all that one transaction claims, they fit into memory.
const SMALL_MAX: i64 = 16 * 1024;
/// The column behind those of a row that has the length of its body.
const LENGTH: usize = 31;

impl SqlStore {
    /// Reads rows with their bodies and keeps others from changing them until the end of the transaction, except those that somebody
    /// works on. Those that do not fit into one claim any more, in the order of their turns, are left out.
    pub(super) async fn lock_within_budget<'t>(
        &self,
        session: &mut Session,
        ids: &[&MessageId],
        candidate: impl Fn(&MessageId) -> Option<&'t ClaimOrder>,
    ) -> Result<FoundRows, Fault> {
        let mut found = FoundRows::default();
        let mut sized = Vec::with_capacity(ids.len());
        for list in lists(ids) {
            for answer in session.rows(self.small_bodies(list)).await? {
                let bytes = answer.maybe_int(LENGTH)?.unwrap_or_default();
                match Row::read(&answer)? {
                    Ok(row) => sized.push((row, bytes)),
                    Err(bad) => found.bad.push(bad),
                }
            }
        }
        sized.sort_by(|(a, _), (b, _)| candidate(a.id()).cmp(&candidate(b.id())));
        let (mut budget, mut large) = (ClaimBudget::default(), BTreeSet::new());
        for (row, bytes) in sized {
            // A small body is counted with the message.
            let more = if bytes > SMALL_MAX { usize::try_from(bytes).unwrap_or(usize::MAX) } else { 0 };
            if !budget.takes(row.record.message.bytes().saturating_add(more)) {
                break;
            }
            if more > 0 {
                large.insert(row.id().clone());
            }
            found.rows.push(row);
        }
        self.read_bodies(session, &large.iter().collect::<Vec<_>>(), &mut found.rows).await?;
        Ok(found)
    }

    fn small_bodies(&self, ids: Vec<&str>) -> Statement {
        let mut select = Statement::new(self.dialect(), "SELECT ");
        select.push(COLUMNS).push("CASE WHEN OCTET_LENGTH(body) <= ").bind(SMALL_MAX);
        select.push(" THEN body END, CAST(OCTET_LENGTH(body) AS ").push_as("SIGNED", "BIGINT");
        // In a small table MySQL would rather read every row, and wait for those of others that are locked.
        select.push(") FROM delay_message ").push_as("FORCE INDEX (PRIMARY) ", "");
        // All who lock the same rows lock them in the same order, so that none waits for another for ever.
        select.push("WHERE message_id IN (").bind_all(ids);
        select.push(") ORDER BY message_id FOR UPDATE SKIP LOCKED");
        select
    }

    /// Puts the bodies of these rows, which are locked, into them.
    async fn read_bodies(
        &self,
        session: &mut Session,
        ids: &[&MessageId],
        rows: &mut [Row],
    ) -> Result<(), Fault> {
        let mut bodies: HashMap<String, Body> = HashMap::new();
        for list in lists(ids) {
            let mut select =
                Statement::new(self.dialect(), "SELECT message_id, content_kind, body FROM delay_message ");
            select.push_as("FORCE INDEX (PRIMARY) ", "");
            select.push("WHERE message_id IN (").bind_all(list).push(")");
            for answer in session.rows(select).await? {
                let (word, body) = (answer.maybe_text(1)?, answer.bytes(2)?);
                let kind =
                    kind_of(word.as_deref(), &body).map_err(|_| Fault::garbled("the kind of a body"))?;
                bodies.insert(answer.text(0)?, Body::from_parts(kind, body));
            }
        }
        for row in rows {
            if let Some(body) = bodies.remove(row.id().as_str()) {
                row.record.message.body = body;
            }
        }
        Ok(())
    }
}
