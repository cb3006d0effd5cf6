//! The bounded look that backs up wake-ups.

use std::{collections::HashMap, time::Duration};

use duly_core::{
    Lane, MessageId, Now, State, Timestamp,
    store::{StoreError, Sweep},
};

use super::{
    SqlStore, adopt,
    count::Tally,
    fault::Fault,
    link::{Session, Statement},
    nodes::Chore,
    row::{Bodies, IN_FLIGHT, queue_no},
    settle::lose,
    work::{look, transact},
    write::Locked,
};
use crate::server::lane::lane_text;

/// How many leases a sweep ends; if there are more, it asks to be called again at once.
const LEASES_MAX: usize = 500;

/// What a first look saw.
#[derive(Default)]
struct Looked {
    /// Rows that somebody else put there.
    strangers: bool,
    /// Leases in the order of their ends.
    leases: Vec<(MessageId, u64)>,
    paused: Vec<i64>,
}

impl SqlStore {
    pub(super) async fn sweep_all(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let mut sweep = self.sweep_leases(now, lanes).await?;
        let paused = sweep.paused.clone().unwrap_or_default();
        let next = self.next_of(lanes).await?;
        sweep.next = next.into_iter().filter(|(lane, _)| !paused.contains(lane)).collect();
        Ok(sweep)
    }

    /// All of a sweep but when each lane is next due.
    pub(crate) async fn sweep_leases(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        self.check_open()?;
        let asked = self.room.ask();
        self.clear_doubts(now).await?;
        let names: Vec<_> = lanes.iter().map(lane_text).collect();
        self.number_lanes(names.iter().cloned()).await?;
        let mut again = self.announce(now, names.iter().cloned().collect()).await?;
        let looked = look!(self, |session| self.look_around(&mut session))?;
        if looked.strangers && self.adopt(now).await? == adopt::TOGETHER_MAX {
            again = Duration::ZERO;
        }
        let tick = self.time.tick(now);
        let over: Vec<_> = looked.leases.iter().filter(|(_, end)| *end <= tick).map(|(id, _)| id).collect();
        let ended = if over.is_empty() {
            0
        } else {
            transact!(self, |session| self.end_leases(&mut session, now, &over))?
        };
        if over.len() == LEASES_MAX || self.forget(now).await? {
            again = Duration::ZERO;
        }
        self.hints.swept();
        if self.presence.is_time_for(Chore::CountHeld, now) {
            let books = self.all_books().await?;
            self.room.tell(asked, books.pending + books.in_flight);
        }
        if self.presence.is_time_for(Chore::TidyCounters, now) {
            self.tidy_counters(now).await?;
        }
        let is_paused = |name: &String| self.lanes.number(name).is_some_and(|no| looked.paused.contains(&no));
        let all = || lanes.iter().zip(&names);
        Ok(Sweep {
            next: Vec::new(),
            leases_ended: ended,
            next_lease_end: looked
                .leases
                .iter()
                .find(|(_, end)| *end > tick)
                .map(|(_, end)| self.time.mono(now, *end)),
            again_within: Some(again),
            paused: Some(all().filter(|(_, name)| is_paused(name)).map(|(lane, _)| lane.clone()).collect()),
        })
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
            // What other nodes deliver is theirs to look at.
            let own = |shard: &u16| matches!(lane, Lane::Queue(_)) || self.nodes.may_claim(&name, *shard);
            queues.extend((0..self.options.shards).filter(own).map(|shard| (lane, (number, shard))));
        }
        queues
    }

    async fn look_around(&self, session: &mut Session) -> Result<Looked, Fault> {
        let mut select = Statement::new(
            self.dialect(),
            "SELECT 0 AS kind, 0 AS at, NULL AS id FROM duly_lane WHERE EXISTS \
             (SELECT 1 FROM delay_message WHERE queue_no IS NULL) AND lane_no = \
             (SELECT MIN(lane_no) FROM duly_lane) UNION ALL SELECT 1, lane_no, NULL FROM duly_lane WHERE paused <> 0 \
             UNION ALL (SELECT 2, queue_at, message_id FROM delay_message WHERE queue_no = ",
        );
        select.bind(IN_FLIGHT).push(" ORDER BY queue_at, queue_rank, message_id LIMIT ");
        select.bind(LEASES_MAX as i64 + 1).push(")");
        let mut looked = Looked::default();
        for row in session.rows(select).await? {
            match row.int(0)? {
                0 => looked.strangers = true,
                1 => looked.paused.push(row.int(1)?),
                _ => {
                    let id = MessageId::parse(&row.text(2)?).map_err(|_| Fault::garbled("an id"))?;
                    looked.leases.push((id, row.int(1)? as u64));
                }
            }
        }
        looked.leases.sort_by_key(|(_, end)| *end);
        Ok(looked)
    }

    async fn end_leases(&self, session: &mut Session, now: Now, ids: &[&MessageId]) -> Result<usize, Fault> {
        let slot = self.slots.take();
        let mut ids = ids[..ids.len().min(LEASES_MAX)].to_vec();
        ids.sort_unstable();
        let mut rows = self.lock(session, &ids, Bodies::Without, Locked::Skip).await?.rows;
        let tick = self.time.tick(now);
        rows.retain(|row| row.record.state == State::InFlight && row.lease_end <= tick);
        let mut tally = Tally::default();
        for row in &mut rows {
            lose(row, now, "the lease ran out", &mut tally);
        }
        let rows: Vec<_> = rows.iter().collect();
        self.write(session, now, &rows).await?;
        self.tell_of(session, now, rows.iter().copied()).await?;
        self.count(session, &slot, tally).await?;
        Ok(rows.len())
    }
}
