//! Recovers claims whose process has stopped.

use std::collections::HashSet;

use duly_core::{LeaseLoss, Now, State, store::StoreError};

use super::{
    SqlStore,
    connection::{Session, Statement},
    count::CounterDeltas,
    fault::Fault,
    row::{Bodies, IN_FLIGHT, Row},
    settle::{lose, put_back},
    write::{FoundRows, Locked},
};

/// The difference between the clocks of two nodes that is allowed for.
const CLOCKS_APART_US: u64 = 1_000_000;
/// Claims checked by one transaction.
const BATCH_MAX: usize = 200;

impl SqlStore {
    /// Ends what processes held that are not there any more, and puts the leases of clients on this process's clock.
    pub(super) async fn recover(&self, now: Now, alive: &HashSet<i64>) -> Result<(), StoreError> {
        let mut held = self.read(|borrowed| Box::pin(self.all_claims(borrowed.session))).await?.rows;
        // If a suspect was among what a process held, the suspect is the cause. It goes last: should this process die
        // here, the next one must still see it.
        let ended = |row: &Row| row.process.filter(|process| !alive.contains(process));
        let suspects: HashSet<_> =
            held.iter().filter(|row| row.lost != LeaseLoss::None).filter_map(ended).collect();
        held.sort_by_key(|row| row.lost != LeaseLoss::None);
        for part in held.chunks(BATCH_MAX) {
            let tokens = |row: &Row| (row.id().clone(), row.token);
            let part: Vec<_> = part.iter().map(tokens).collect();
            self.transact(|borrowed| {
                Box::pin(self.recover_in_one(borrowed.session, now, alive, &suspects, &part))
            })
            .await?;
        }
        Ok(())
    }

    async fn all_claims(&self, session: &mut Session) -> Result<FoundRows, Fault> {
        let mut select = Statement::new(self.dialect(), &Bodies::Without.select());
        select.push("WHERE queue_no = ").bind(IN_FLIGHT);
        let mut found = FoundRows::default();
        found.read(session.rows(select).await?)?;
        Ok(found)
    }

    async fn recover_in_one(
        &self,
        session: &mut Session,
        now: Now,
        alive: &HashSet<i64>,
        suspects: &HashSet<i64>,
        held: &[(duly_core::MessageId, u64)],
    ) -> Result<(), Fault> {
        let slot = self.slots.take();
        let mut ids: Vec<_> = held.iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        let mut rows = self.lock(session, &ids, Bodies::Without, Locked::WaitFor).await?.rows;
        let is_same = |row: &Row| held.iter().any(|(id, token)| id == row.id() && *token == row.token);
        rows.retain(|row| row.record.state == State::InFlight && is_same(row));
        let (mut deltas, time) = (CounterDeltas::default(), self.time.latest_tick(now));
        rows.retain_mut(|row| match row.process.filter(|process| !alive.contains(process)) {
            Some(process) if row.lost != LeaseLoss::None || !suspects.contains(&process) => {
                lose(row, now, "the process ended", &mut deltas);
                true
            }
            Some(_) => {
                // Another one is the suspect.
                (row.lost, row.record.maybe_delivered) = (LeaseLoss::InBatch, true);
                put_back(row, &mut deltas);
                true
            }
            // Even if wall time has stepped meanwhile, no lease lasts longer than it was given for.
            None if row.lease_end > time + row.span_us as u64 + CLOCKS_APART_US => {
                row.lease_end = time + row.span_us as u64;
                true
            }
            None => false,
        });
        let rows: Vec<_> = rows.iter().collect();
        self.write(session, now, &rows).await?;
        self.send_hints(session, now, rows.into_iter().filter(|row| row.record.state == State::Pending))
            .await?;
        self.count(session, &slot, deltas).await
    }
}
