//! `sweep`: ends leases, and does chores of the store.

use std::{collections::HashMap, time::Duration};

use duly_core::{
    Lane, MessageId, Now, State, Timestamp,
    store::{StoreError, Sweep},
};

use super::{
    SqlStore,
    batches::Batches,
    connection::{Session, Statement},
    count::{Counter, CounterDeltas, TOTALS},
    fault::Fault,
    nodes::Chore,
    retention::Kept,
    row::{Bodies, ENDED, IN_FLIGHT, lane_and_shard, queue_no},
    settle::lose,
    write::{FoundRows, Locked},
};
use crate::shared::lane::lane_text;

/// How many leases a sweep ends; if there are more, it asks to be called again at once.
const LEASES_MAX: usize = 500;

/// The result of a chore of the sweep. One that failed is logged, and the next sweep tries again.
pub(crate) fn report_failed<T>(chore: &str, outcome: Result<T, StoreError>) -> Option<T> {
    outcome
        .inspect_err(
            |error| tracing::warn!(chore, %error, "sweep chore failed; tried again at the next sweep"),
        )
        .ok()
}

/// The result of the sweep's first query.
#[derive(Default)]
struct SweepRows {
    /// Whether there are rows that another program inserted.
    has_outbox_rows: bool,
    /// Leases in the order of their ends.
    leases: Vec<(MessageId, i64)>,
    paused: Vec<i64>,
    kept: Kept,
}

impl SqlStore {
    pub(super) async fn sweep_all(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let mut sweep = self.sweep_leases(now, lanes).await?;
        let paused = sweep.paused.clone().unwrap_or_default();
        let next = self.next_of(lanes).await?;
        sweep.next = next.into_iter().filter(|(lane, _)| !paused.contains(lane)).collect();
        Ok(sweep)
    }

    /// All of a sweep but when each lane is next due. Leases are ended before the chores, and a chore that fails keeps no other from
    /// being done: the next sweep tries again.
    pub(crate) async fn sweep_leases(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        self.check_open()?;
        let answered_before = self.room.ask();
        // What was claimed without an answer counts no attempt, also if its lease has ended.
        self.release_unconfirmed(now).await;
        let withheld = self.unconfirmed.ids();
        let found = self.read(|borrowed| Box::pin(self.sweep_rows(borrowed.session, withheld.len()))).await?;
        let tick = self.time.tick(now);
        let is_over = |end: i64| end as u64 <= tick;
        let ends = |(id, end): &&(MessageId, i64)| is_over(*end) && !withheld.contains(id);
        let over: Vec<_> = found.leases.iter().filter(ends).map(|(id, _)| id).collect();
        let ended = self.end_all(now, &over).await?;
        let names: Vec<_> = lanes.iter().map(lane_text).collect();
        let announced = self.announce_lanes(now, &names).await;
        let is_more = self.import_and_forget(now, &found).await;
        self.hints.swept();
        self.count_and_tidy(now, answered_before).await;
        // Without its heartbeat this node loses its lanes to the others: that is of the store as a whole.
        let again = announced?;
        // If others hold the rows of all, they are asked for no sooner.
        let is_more_over = over.len() > LEASES_MAX && ended > 0;
        let is_paused = |name: &String| self.lanes.number(name).is_some_and(|no| found.paused.contains(&no));
        let all = || lanes.iter().zip(&names);
        Ok(Sweep {
            next: Vec::new(),
            leases_ended: ended,
            next_lease_end: found
                .leases
                .iter()
                .find(|(_, end)| !is_over(*end))
                .map(|(_, end)| self.time.mono(now, *end as u64)),
            again_within: Some(if is_more || is_more_over { Duration::ZERO } else { again }),
            paused: Some(all().filter(|(_, name)| is_paused(name)).map(|(lane, _)| lane.clone()).collect()),
        })
    }

    /// Gives numbers to the lanes that this node serves, and writes its heartbeat. Returns when to sweep again.
    async fn announce_lanes(&self, now: Now, names: &[String]) -> Result<Duration, StoreError> {
        if self.presence.is_time_for(Chore::ForgetLanes, now) {
            report_failed("removal of lanes without messages", self.forget_lanes(names).await);
        }
        report_failed("numbering of lanes", self.number_lanes(names.iter().cloned()).await);
        self.announce(now, names.iter().cloned().collect()).await
    }

    /// Takes in rows that others put there, and removes what is past retention. Returns whether there is more to do at once.
    async fn import_and_forget(&self, now: Now, found: &SweepRows) -> bool {
        let mut is_more = false;
        report_failed("burial of unreadable rows", self.bury_unreadable(now).await);
        if found.has_outbox_rows {
            is_more |=
                report_failed("import of outbox rows", self.import_outbox_rows(now).await) == Some(true);
        }
        if self.writes.is_full() && self.presence.is_time_for(Chore::ProbeRoom, now) {
            self.probe_room().await;
        }
        is_more
            | (report_failed("removal of ended messages", self.forget(now, &found.kept).await) == Some(true))
    }

    async fn count_and_tidy(&self, now: Now, answered_before: u64) {
        if self.presence.is_time_for(Chore::CountPending, now)
            && let Some(totals) = report_failed("count of pending messages", self.all_totals().await)
        {
            self.room.update(answered_before, totals.pending + totals.in_flight);
        }
        if self.presence.is_time_for(Chore::TidyCounters, now) {
            report_failed("tidying of counters", self.tidy_counters(now).await);
            if self.presence.is_first() {
                report_failed("repair of lost lanes", self.restore_lanes().await);
            }
        }
    }

    /// The queues of these lanes whose first message was ready before `now`, as far as this node may claim from them.
    pub(crate) async fn overdue_in(
        &self,
        now: Timestamp,
        lanes: &[Lane],
    ) -> Result<Vec<(i64, u16)>, StoreError> {
        let queues: Vec<_> =
            self.queues_of(lanes).into_iter().map(|(_, (lane_no, shard))| queue_no(lane_no, shard)).collect();
        let before = now.as_millis() as i64 * 1000;
        let firsts = self.firsts_of(&queues).await?;
        Ok(firsts
            .into_iter()
            .filter(|(_, at)| *at < before)
            .map(|(queue, _)| lane_and_shard(queue))
            .collect())
    }

    /// When each lane is next due, as far as this node may claim from it.
    pub(crate) async fn next_of(&self, lanes: &[Lane]) -> Result<Vec<(Lane, Timestamp)>, StoreError> {
        let mut queues = HashMap::new();
        for (lane, (lane_no, shard)) in self.queues_of(lanes) {
            queues.insert(queue_no(lane_no, shard), lane);
        }
        let mut all: Vec<_> = queues.keys().copied().collect();
        all.sort_unstable();
        let mut next: HashMap<&Lane, i64> = HashMap::new();
        for (queue, at) in self.firsts_of(&all).await? {
            let Some(lane) = queues.get(&queue) else { continue };
            next.entry(lane).and_modify(|first| *first = at.min(*first)).or_insert(at);
        }
        let time = |at: i64| Timestamp::from_millis(at as u64 / 1000);
        Ok(next.into_iter().map(|(lane, at)| (lane.clone(), time(at))).collect())
    }

    /// The queues of lanes that have numbers, as far as this node may claim from them.
    pub(crate) fn queues_of<'l>(&self, lanes: &'l [Lane]) -> Vec<(&'l Lane, (i64, u16))> {
        let mut queues = Vec::new();
        for lane in lanes {
            let name = lane_text(lane);
            let Some(number) = self.lanes.number(&name) else { continue };
            // The lanes that other nodes deliver are theirs to sweep.
            let own = |shard: &u16| matches!(lane, Lane::Queue(_)) || self.nodes.may_claim(&name, *shard);
            queues.extend((0..self.options.shards).filter(own).map(|shard| (lane, (number, shard))));
        }
        queues
    }

    /// `withheld`: how many leases are not ended, although they may be over. They take no places of others.
    async fn sweep_rows(&self, session: &mut Session, withheld: usize) -> Result<SweepRows, Fault> {
        let mut select = Statement::new(
            self.dialect(),
            "(SELECT 0 AS kind, 0 AS at, message_id AS id FROM delay_message WHERE queue_no IS NULL LIMIT 1) \
             UNION ALL SELECT 1, lane_no, NULL FROM duly_lane WHERE paused <> 0 \
             UNION ALL (SELECT 2, queue_at, message_id FROM delay_message WHERE queue_no = ",
        );
        let in_order = " ORDER BY queue_at, queue_rank, message_id LIMIT ";
        select.bind(IN_FLIGHT).push(in_order).bind((LEASES_MAX + 1 + withheld) as i64);
        select.push(") UNION ALL (SELECT 3, queue_at, NULL FROM delay_message WHERE queue_no = ").bind(ENDED);
        select.push(in_order).bind(1);
        select.push(") UNION ALL SELECT 4, CAST(COALESCE(SUM(n), 0) AS ").push_as("SIGNED", "BIGINT");
        select.push("), NULL FROM duly_count WHERE kind = ").bind(TOTALS);
        select.push(" AND what = ").bind(Counter::Kept as i64);
        let mut found = SweepRows::default();
        for row in session.rows(select).await? {
            match row.int(0)? {
                0 => found.has_outbox_rows = true,
                1 => found.paused.push(row.int(1)?),
                2 => found.leases.extend(self.id_in(&row, 2)?.zip(row.maybe_int(1)?)),
                3 => found.kept.oldest = row.maybe_int(1)?,
                _ => found.kept.count = row.int(1)?,
            }
        }
        found.leases.sort_by_key(|(_, end)| *end);
        Ok(found)
    }

    /// Ends these leases, as many as a sweep ends. Returns how many messages had them. A row that the database refuses to change keeps its
    /// lease, and no other.
    async fn end_all(&self, now: Now, over: &[&MessageId]) -> Result<usize, StoreError> {
        let mut batches = Batches::of(over.iter().copied().take(LEASES_MAX), LEASES_MAX);
        let mut all = 0;
        while let Some(batch) = batches.next() {
            let ended =
                self.transact(|borrowed| Box::pin(self.end_leases(borrowed.session, now, &batch))).await;
            match ended {
                Ok((ended, damaged)) => {
                    all += ended;
                    self.writes.count_damaged(damaged);
                }
                Err(error) => batches.failed(batch, error)?,
            }
        }
        report_failed("end of leases", batches.outcome());
        Ok(all)
    }

    /// Ends these leases. Returns how many messages had them, and how many others could not be read and are dead letters now.
    async fn end_leases(
        &self,
        session: &mut Session,
        now: Now,
        ids: &[&MessageId],
    ) -> Result<(usize, usize), Fault> {
        let slot = self.slots.take();
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let FoundRows { mut rows, bad } = self.lock(session, &ids, Bodies::Without, Locked::Skip).await?;
        let tick = self.time.tick(now);
        rows.retain(|row| row.record.state == State::InFlight && row.lease_end <= tick);
        let mut deltas = CounterDeltas::default();
        let mut damaged = 0;
        for bad in bad.iter().filter(|bad| bad.queue_no == Some(IN_FLIGHT)) {
            self.bury(session, now, bad, &mut deltas).await?;
            damaged += 1;
        }
        for row in &mut rows {
            lose(row, now, "the lease ran out", &mut deltas);
        }
        let rows: Vec<_> = rows.iter().collect();
        self.write(session, now, &rows).await?;
        self.send_hints(session, now, rows.iter().copied()).await?;
        self.count(session, &slot, deltas).await?;
        Ok((rows.len(), damaged))
    }
}
