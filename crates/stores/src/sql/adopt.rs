//! Rows that somebody else put into `delay_message`, by an `INSERT` of their own: looked at, and taken in or buried.

use duly_core::{Attempt, DeadReason, Now, Outcome, State, store::StoreError};

use super::{
    SqlStore,
    count::{Book, Tally},
    fault::Fault,
    link::{Session, Statement},
    row::{Bad, Bodies},
    work::transact,
    write::Found,
};
use crate::server::lane::lane_text;

/// So many are looked at in one transaction.
pub(super) const TOGETHER_MAX: usize = 200;
/// The lane of rows that name none, so that their dead letters are counted somewhere.
const NOWHERE: &str = "s?";

impl SqlStore {
    /// Takes in rows that nobody has looked at. Gives how many there were.
    pub(super) async fn adopt(&self, now: Now) -> Result<usize, StoreError> {
        let nowhere = self.lane_number(NOWHERE).await?;
        // Their lanes get numbers in transactions of their own, so nothing waits for this one.
        let lanes = transact!(self, |session| self.strangers(&mut session))?;
        let names = lanes.rows.iter().map(|row| lane_text(&row.record.message.lane()));
        self.number_lanes(names.collect::<Vec<_>>()).await?;
        let call = self.calls.next();
        transact!(self, |session| self.adopt_in_one(&mut session, now, call, nowhere))
    }

    async fn strangers(&self, session: &mut Session) -> Result<Found, Fault> {
        let mut select = Statement::new(self.dialect(), &Bodies::With.select());
        select
            .push("WHERE queue_no IS NULL LIMIT ")
            .bind(TOGETHER_MAX as i64)
            .push(" FOR UPDATE SKIP LOCKED");
        let mut found = Found::default();
        found.read(session.rows(select).await?)?;
        Ok(found)
    }

    async fn adopt_in_one(
        &self,
        session: &mut Session,
        now: Now,
        call: i64,
        nowhere: i64,
    ) -> Result<usize, Fault> {
        let slot = self.slots.take();
        let found = self.strangers(session).await?;
        let (mut tally, mut taken) = (Tally::default(), Vec::new());
        let seen = found.rows.len() + found.bad.len();
        for bad in &found.bad {
            self.bury(session, now, bad, None, &mut tally).await?;
            tally.dead(nowhere, 1);
            tally.book(Book::Accepted, 1);
        }
        for mut row in found.rows {
            // Inserted since the lanes were looked at: the next sweep takes it.
            let Some(lane_no) = self.lanes.number(&lane_text(&row.record.message.lane())) else { continue };
            row.lane_no = lane_no;
            row.is_raw = false;
            row.last_call = call;
            tally.book(Book::Accepted, 1);
            if row.record.state == State::Pending {
                row.record.ready = row.record.message.due;
                tally.pending(lane_no, row.record.ready, 1);
            } else {
                // It says that it is over before Duly has heard of it.
                row.note(Attempt::new(
                    now.wall(),
                    Outcome::Refused,
                    "status: a new row is PENDING [bad_status]",
                ));
                row.record.state = State::Dead;
                row.record.reason = Some(DeadReason::Invalid);
                row.record.ended = Some(now.wall());
                tally.dead(lane_no, 1);
            }
            taken.push(row);
        }
        taken.sort_by(|a, b| a.id().cmp(b.id()));
        let rows: Vec<_> = taken.iter().collect();
        self.write(session, now, &rows).await?;
        self.tell_of(session, now, taken.iter().filter(|row| row.record.state == State::Pending)).await?;
        self.count(session, &slot, tally).await?;
        Ok(seen)
    }

    /// Makes a row that is no message a dead letter which says why. If it waited in a lane, it is counted there no more.
    pub(super) async fn bury(
        &self,
        session: &mut Session,
        now: Now,
        bad: &Bad,
        from: Option<i64>,
        tally: &mut Tally,
    ) -> Result<(), Fault> {
        tracing::error!(
            id = bad.id,
            "a row of delay_message is no message and was made a dead letter: {}",
            bad.why
        );
        let history = serde_json::json!([{
            "at_ms": now.wall().as_millis(),
            "outcome": Outcome::Refused.as_str(),
            "detail": Attempt::new(now.wall(), Outcome::Refused, bad.why.to_string()).detail,
        }]);
        let mut update =
            Statement::new(self.dialect(), "UPDATE delay_message SET status = 'FAILED', dead_reason = ");
        update
            .bind(DeadReason::Invalid.as_str())
            .push(", end_time_ms = ")
            .bind(now.wall().as_millis() as i64);
        update
            .push(", queue_no = -3, queue_at = ")
            .bind(bad.due_ms.saturating_mul(1000))
            .push(", queue_rank = 0");
        update.push(", history = ").bind(history.to_string().as_str()).push(", version = version + 1");
        update.push(", unindexed_at = NULL").push_as("", ", update_time = CURRENT_TIMESTAMP(3)");
        if from.is_none() {
            let nowhere = self.lanes.number(NOWHERE);
            update.push(", lane_no = ").bind(nowhere);
        }
        update.push(" WHERE message_id = ").bind(bad.id.as_str());
        session.run(update).await?;
        if let (Some(lane_no), Some(_)) = (from, bad.queue_no) {
            let ready = duly_core::Timestamp::from_millis(u64::try_from(bad.due_ms).unwrap_or_default());
            tally.pending(lane_no, ready, -1);
            tally.dead(lane_no, 1);
        }
        Ok(())
    }
}
