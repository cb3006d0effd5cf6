//! Hints of other processes, where the database can send them.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use duly_core::{Lane, Now, Timestamp, store::Hint};
use futures_util::{StreamExt, stream};
use sqlx::postgres::{PgListener, PgPool};

use super::{
    SqlStore,
    connection::{Dialect, Session, Statement},
    fault::Fault,
    redis_index::NEAR,
    row::Row,
};
use crate::shared::{
    hints::{HintListener, Payloads},
    lane::lane_of,
};

/// What is due within this is worth a hint to the other nodes; what is due later their sweeps find in time.
const HINT_WITHIN: Duration = Duration::from_secs(3);
const CHANNEL: &str = "duly_hint";

/// The subscription of this process to hints of others.
#[derive(Default)]
pub(super) struct Hints {
    /// A connection of its own, where the database can notify.
    pool: Option<PgPool>,
    listener: HintListener,
    /// Hints are received by other means.
    elsewhere: AtomicBool,
}

impl Hints {
    pub(super) fn new(pool: Option<PgPool>) -> Self {
        Self { pool, ..Self::default() }
    }

    /// Whether hints of other nodes are received.
    pub(super) fn are_received(&self) -> bool {
        self.pool.is_some() || self.elsewhere.load(Ordering::Relaxed)
    }

    /// The database answered a sweep: if there is no connection that listens, this is a good time for one.
    pub(super) fn swept(&self) {
        self.listener.swept();
    }

    async fn listen(&self) -> Option<Payloads> {
        let mut listener = PgListener::connect_with(self.pool.as_ref()?).await.ok()?;
        listener.listen(CHANNEL).await.ok()?;
        // `None` is a connection that was lost, and maybe hints with it.
        let next = |mut listener: PgListener| async move {
            let payload = listener.try_recv().await.ok()??.payload().as_bytes().to_vec();
            Some((payload, listener))
        };
        Some(stream::unfold(listener, next).boxed())
    }
}

impl SqlStore {
    /// Whether hints are received by other means than the database.
    pub(crate) fn set_received_elsewhere(&self, received: bool) {
        self.hints.elsewhere.store(received, Ordering::Relaxed);
    }

    /// Sends hints of what is ready soon to other nodes, once this transaction is committed.
    pub(super) async fn send_hints<'r>(
        &self,
        session: &mut Session,
        now: Now,
        rows: impl Iterator<Item = &'r Row>,
    ) -> Result<(), Fault> {
        if self.redis_index.is_kept {
            let near = now.wall().saturating_add(NEAR);
            session
                .index_entries
                .extend(rows.filter(|row| row.record.ready <= near).map(|row| self.entry_of(row)));
            return Ok(());
        }
        if self.dialect() != Dialect::Postgres {
            return Ok(());
        }
        let horizon = now.wall().saturating_add(HINT_WITHIN);
        let mut soon: BTreeMap<(i64, u16), Timestamp> = BTreeMap::new();
        for row in rows.filter(|row| row.record.ready <= horizon) {
            let ready = soon.entry((row.lane_no, self.shard_of(row.id()))).or_insert(row.record.ready);
            *ready = row.record.ready.min(*ready);
        }
        if soon.is_empty() || self.presence.is_alone() {
            return Ok(());
        }
        let payload = |((lane_no, shard), at): ((i64, u16), Timestamp)| {
            let lane = self.lanes.name(lane_no)?;
            Some(format!("{} {shard} {} {lane}", self.options.instance, at.as_millis()))
        };
        let mut notify = Statement::new(self.dialect(), "SELECT ");
        for (index, payload) in soon.into_iter().filter_map(payload).enumerate() {
            notify.push(if index == 0 { "pg_notify(" } else { ", pg_notify(" });
            notify.bind(CHANNEL).push(", ").bind(payload.as_str()).push(")");
        }
        session.rows(notify).await?;
        Ok(())
    }

    /// The next hint of another process.
    pub(super) async fn next_hint(&self) -> Hint {
        let parse = |payload: &[u8]| self.parse_hint(std::str::from_utf8(payload).ok()?);
        self.hints.listener.next(|| self.hints.listen(), parse).await
    }

    /// The hint of an entry for other nodes, if it is ready soon.
    pub(crate) fn hint_of(&self, now: Now, entry: &super::IndexEntry) -> Option<String> {
        let is_soon = entry.candidate.ready <= now.wall().saturating_add(HINT_WITHIN);
        let lane = self.lanes.name(entry.lane_no).filter(|_| is_soon && !self.presence.is_alone())?;
        Some(format!(
            "{} {} {} {lane}",
            self.options.instance,
            entry.shard,
            entry.candidate.ready.as_millis()
        ))
    }

    /// What this process sent it knows, and what another node delivers is of no use here.
    pub(crate) fn parse_hint(&self, payload: &str) -> Option<Hint> {
        let mut words = payload.splitn(4, ' ');
        let sender: u64 = words.next()?.parse().ok()?;
        let shard: u16 = words.next()?.parse().ok()?;
        let due = Timestamp::from_millis(words.next()?.parse().ok()?);
        let name = words.next()?;
        let lane = lane_of(name.as_bytes())?;
        let is_ours = matches!(lane, Lane::Queue(_)) || self.nodes.may_claim(name, shard);
        (sender != self.options.instance && is_ours).then_some(Hint { lane, due })
    }
}
