//! Messages that wait under the number of another lane: a node that knew a number from before a failover put them there. And rows whose lane
//! is damaged.

use std::collections::BTreeSet;

use duly_core::{MessageId, Now, State, store::StoreError};

use super::{
    SqlStore,
    claim::ClaimRequest,
    connection::{Session, Statement},
    count::CounterDeltas,
    fault::Fault,
    row::{Bad, Bodies, Row},
    settle::put_back,
    write::{FoundRows, Locked, lists},
};
use crate::shared::lane::lane_text;

impl SqlStore {
    /// A claim passed over the messages of these ids. Those of another lane would take places of every claim: they are moved to
    /// their own. Those that cannot be read become dead letters.
    pub(super) async fn move_misplaced(
        &self,
        now: Now,
        request: &ClaimRequest<'_>,
        ids: Vec<&MessageId>,
    ) -> Result<(), StoreError> {
        let is_misplaced = |row: &Row| {
            row.record.state == State::Pending
                && !row.is_raw
                && row.lane_no == request.lane_no
                && row.record.message.lane() != request.claim.lane
        };
        let FoundRows { rows: seen, bad } =
            self.read(|borrowed| Box::pin(self.without_bodies(borrowed.session, &ids))).await?;
        if bad.iter().any(Bad::waits) {
            let damaged =
                self.transact(|borrowed| Box::pin(self.bury_in_one(borrowed.session, now, &ids))).await?;
            self.writes.count_damaged(damaged);
        }
        let misplaced: Vec<_> = seen.iter().filter(|row| is_misplaced(row)).collect();
        if misplaced.is_empty() {
            return Ok(());
        }
        let lanes: BTreeSet<_> = misplaced.iter().map(|row| lane_text(&row.record.message.lane())).collect();
        tracing::warn!(
            lane = request.lane,
            count = misplaced.len(),
            "misplaced messages moved to their lanes"
        );
        // Or it is the number of the lane that was asked for which is not right any more.
        let names: Vec<_> = lanes.into_iter().chain([request.lane.to_owned()]).collect();
        self.relearn(&names).await?;
        let ids: Vec<_> = misplaced.iter().map(|row| row.id()).collect();
        self.transact(|borrowed| Box::pin(self.move_in_one(borrowed.session, now, &ids, &is_misplaced))).await
    }

    /// Makes dead letters of those that wait and cannot be read. A claim that looks for the lane does not find a row whose topic or sink is
    /// damaged, and it would be the first of its queue for ever. Returns how many there were.
    async fn bury_in_one(&self, session: &mut Session, now: Now, ids: &[&MessageId]) -> Result<usize, Fault> {
        let slot = self.slots.take();
        let mut bad = self.lock(session, ids, Bodies::Without, Locked::Skip).await?.bad;
        bad.retain(Bad::waits);
        let mut deltas = CounterDeltas::default();
        for bad in &bad {
            self.bury(session, now, bad, &mut deltas).await?;
        }
        self.count(session, &slot, deltas).await?;
        Ok(bad.len())
    }

    async fn without_bodies(&self, session: &mut Session, ids: &[&MessageId]) -> Result<FoundRows, Fault> {
        let mut found = FoundRows::default();
        for list in lists(ids) {
            let mut select = Statement::new(self.dialect(), &Bodies::Without.select());
            select.push("WHERE message_id IN (").bind_all(list).push(")");
            found.read(session.rows(select).await?)?;
        }
        Ok(found)
    }

    async fn move_in_one(
        &self,
        session: &mut Session,
        now: Now,
        ids: &[&MessageId],
        is_misplaced: &(dyn Fn(&Row) -> bool + Sync),
    ) -> Result<(), Fault> {
        let slot = self.slots.take();
        let mut rows = self.lock(session, ids, Bodies::Without, Locked::Skip).await?.rows;
        rows.retain(|row| is_misplaced(row));
        let mut deltas = CounterDeltas::default();
        let mut moved = Vec::new();
        for mut row in rows {
            let Some(number) = self.lanes.number(&lane_text(&row.record.message.lane())) else { continue };
            if number != row.lane_no {
                deltas.pending(row.lane_no, row.record.ready, -1);
                row.lane_no = number;
                put_back(&mut row, &mut deltas);
                moved.push(row);
            }
        }
        let moved: Vec<_> = moved.iter().collect();
        self.write(session, now, &moved).await?;
        self.send_hints(session, now, moved.into_iter()).await?;
        self.count(session, &slot, deltas).await
    }
}
