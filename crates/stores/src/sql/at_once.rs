//! What PostgreSQL can do with one statement where others need several: its changes give rows, and its values are arrays.

use std::collections::BTreeMap;

use duly_core::{Fence, MessageId, Now, SinkName, StoredMessage, store::Claim};

use super::{
    SqlStore,
    claim::{ClaimOutcome, ClaimRequest, Owned, leased},
    connection::{Session, Statement},
    count::{CounterDeltas, Slot},
    fault::Fault,
    row::{Bodies, Row},
    text::{kind_word, properties_text, retry_text},
    write::{FoundRows, INSERTED},
};
use crate::shared::claim_order::ClaimOrder;

impl SqlStore {
    /// Claims those of the rows that still wait as they were seen and that nobody works on, reads them and counts them.
    pub(super) async fn claim_at_once(
        &self,
        session: &mut Session,
        now: Now,
        request: &ClaimRequest<'_>,
        candidates: &BTreeMap<&MessageId, (&ClaimOrder, Owned)>,
        mut claims: ClaimOutcome,
    ) -> Result<ClaimOutcome, Fault> {
        let slot = self.slots.take();
        let token = self.calls.next_token(self.time.tick(now));
        let mut take =
            Statement::new(self.dialect(), "WITH due AS (SELECT message.ctid AS row_id, candidate.number, ");
        // Known without reading the body.
        take.push("COALESCE(octet_length(message.body), 0)::BIGINT + COALESCE(octet_length(message.properties), 0) AS bytes FROM unnest(");
        let mut in_order: Vec<_> = candidates.values().map(|(candidate, _)| *candidate).collect();
        in_order.sort_unstable();
        take.bind_array(in_order.iter().map(|candidate| candidate.id.as_str()).collect::<Vec<_>>())
            .push(", ");
        take.bind_array(
            in_order.iter().map(|candidate| candidate.ready.as_millis() as i64 * 1000).collect::<Vec<_>>(),
        );
        // Found by their ids: the index of the queues has many entries of rows that have left.
        take.push(
            ") WITH ORDINALITY AS candidate (id, at, number) JOIN delay_message AS message ON message.message_id = candidate.id AND \
             message.queue_at + 0 = candidate.at WHERE message.queue_no + 0 > 0 AND message.lane_no = ",
        );
        take.bind(request.lane_no);
        // A number that this node knows from before a failover may be another lane's by now.
        match request.claim.lane.queue() {
            Some(topic) => {
                take.push(" AND message.sink = ").bind(SinkName::QUEUE);
                take.push(" AND message.topic = ").bind(topic.as_str())
            }
            None => take.push(" AND message.sink = ").bind(request.claim.lane.parts().1),
        };
        take.push(" FOR UPDATE OF message SKIP LOCKED), ");
        // As many as one claim gives, in their order, and at least one.
        take.push("fits AS (SELECT row_id FROM (SELECT row_id, SUM(bytes) OVER (ORDER BY number) AS total, ");
        take.push("ROW_NUMBER() OVER (ORDER BY number) AS nth FROM due) AS sums WHERE nth = 1 OR total <= ");
        take.bind(Claim::BYTES_MAX as i64).push("), claimed AS (UPDATE delay_message SET ");
        self.claimed_by(&mut take, now, request, token);
        take.push(" FROM fits WHERE ctid = fits.row_id RETURNING ").push(&Bodies::With.columns());
        take.push("), counted AS (");
        self.count_claimed(&mut take, session, &slot);
        take.push(") SELECT * FROM claimed");
        let mut found = FoundRows::default();
        found.read(session.rows(take).await?)?;
        claims.missed = found.rows.len() < candidates.len();
        let mut deltas = CounterDeltas::default();
        for bad in &found.bad {
            self.bury(session, now, bad, &mut deltas).await?;
            claims.damaged += 1;
        }
        self.count(session, &slot, deltas).await?;
        for row in found.rows {
            let Some((candidate, (shard, lease))) = candidates.get(row.id()).copied() else { continue };
            let fence = lease.map(|token| Fence { scope: self.scope(request.lane, shard), token });
            claims.leased.push((candidate.clone(), leased(row, shard, fence)));
        }
        Ok(claims)
    }

    /// Puts new rows there and counts them. If one of the ids is known, that is a [`Fault::DuplicateId`].
    pub(super) async fn insert_at_once(
        &self,
        session: &mut Session,
        now: Now,
        slot: &Slot<'_>,
        rows: &[&Row],
        deltas: CounterDeltas,
    ) -> Result<(), Fault> {
        let mut insert = self.with_counts(session, slot, deltas);
        self.put_arrays(&mut insert, now, rows);
        if session.run(insert).await? < rows.len() as u64 {
            return Err(Fault::DuplicateId);
        }
        Ok(())
    }

    /// An insertion with an array for each column.
    fn put_arrays(&self, insert: &mut Statement, now: Now, rows: &[&Row]) {
        let properties: Vec<_> =
            rows.iter().map(|row| properties_text(&row.record.message.properties)).collect();
        let retry = |row: &&Row| row.record.message.retry.as_deref().and_then(retry_text);
        let retries: Vec<_> = rows.iter().map(retry).collect();
        let positions: Vec<_> = rows.iter().map(|row| row.queue_position(self.shard_of(row.id()))).collect();
        let texts = |of: fn(&StoredMessage) -> Option<&str>| -> Vec<Option<&str>> {
            rows.iter().map(|row| of(&row.record.message)).collect()
        };
        let ints = |of: &dyn Fn(&Row) -> Option<i64>| -> Vec<Option<i64>> {
            rows.iter().map(|row| of(row)).collect()
        };
        insert.push(INSERTED).push(") SELECT * FROM unnest(");
        for column in [
            texts(|message| Some(message.id.as_str())),
            texts(|message| Some(message.sink.as_str())),
            texts(|message| Some(message.topic.as_str())),
            texts(|message| message.tag.as_ref().map(|tag| tag.as_str())),
            texts(|message| message.key.as_ref().map(|key| key.as_str())),
            properties.iter().map(Option::as_deref).collect(),
            retries.iter().map(Option::as_deref).collect(),
            texts(|message| Some(kind_word(message.body.kind()))),
        ] {
            insert.bind_array(column).push(", ");
        }
        insert.bind_array(rows.iter().map(|row| row.record.message.body.as_bytes()).collect::<Vec<_>>());
        for column in [
            ints(&|row| Some(row.record.message.due.as_millis() as i64)),
            ints(&|row| Some(i64::from(row.record.message.priority.get()))),
            ints(&|row| row.max_lateness_ms()),
            ints(&|row| Some(row.record.ready.as_millis() as i64)),
            ints(&|row| Some(row.hash)),
            ints(&|row| Some(row.lane_no)),
            positions.iter().map(|position| Some(position.0)).collect(),
            positions.iter().map(|position| Some(position.1)).collect(),
            positions.iter().map(|position| Some(position.2)).collect(),
            ints(&|row| self.unindexed(now, row)),
        ] {
            insert.push(", ").bind_array(column);
        }
        insert.push(") ON CONFLICT (message_id) DO NOTHING");
    }
}
