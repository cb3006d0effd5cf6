//! Claiming: one read of all shards, then one transaction that claims the selected messages.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use duly_core::{
    Attempt, Fence, Lane, MessageId, Now, Receipt, State, Timestamp,
    store::{Claim, Claimed, Holder, LeasedMessage, StoreError},
};

use super::{
    SqlStore,
    connection::{Dialect, Session, Statement},
    count::CounterDeltas,
    fault::Fault,
    row::{ONLY_CLAIMED, Row, queue_no},
};
use crate::shared::{
    claim_order::{self, ClaimOrder, each, next_behind, next_beside, select_claims},
    lane::lane_text,
};

/// So many are claimed in one transaction.
pub(crate) const BATCH_MAX: usize = 500;

/// After a claim whose messages others had, the next claim waits this long.
const MISSED_WAIT: Duration = Duration::from_millis(10);

/// The first of one lane in one shard.
type ShardCandidates = claim_order::ShardCandidates<()>;

/// A shard, and the fencing token of its shard lease, if the lane has owners.
pub(crate) type Owned = (u16, Option<u64>);

/// A claim that is being made.
pub(crate) struct ClaimRequest<'c> {
    pub(crate) claim: &'c Claim,
    pub(crate) lane: &'c str,
    pub(crate) lane_no: i64,
    pub(crate) call: i64,
    /// The selected messages by shard.
    pub(crate) shards: Vec<(Owned, Vec<ClaimOrder>)>,
    /// If an index selected them: the version in which each is known. Whether the lane is paused was not checked then.
    pub(crate) versions: Option<HashMap<MessageId, i64>>,
}

/// The result of a claim.
#[derive(Default)]
pub(crate) struct ClaimOutcome {
    pub(crate) leased: Vec<(ClaimOrder, LeasedMessage)>,
    /// Shards that another node owns by now.
    lost: Vec<(u16, u64)>,
    /// Another caller had some of them locked, or they have changed.
    pub(super) missed: bool,
    pub(crate) paused: bool,
    /// How many could not be read and are dead letters now.
    pub(super) damaged: usize,
}

impl ClaimOutcome {
    /// When to claim what was missed again. A caller that was faster, or keeps a row locked, is given a moment: to ask at once
    /// would be to ask without end.
    pub(crate) fn again(&self, now: Now) -> Option<Timestamp> {
        let wait = if self.leased.is_empty() { MISSED_WAIT } else { Duration::ZERO };
        self.missed.then(|| now.wall().saturating_add(wait))
    }

    /// What was not claimed although it comes before something that was, by id. If nothing was claimed, that is everything. What
    /// comes after is asked for again by the next claim, as is what was too much for one.
    fn passed_over<'r>(&self, request: &'r ClaimRequest<'_>) -> Vec<&'r MessageId> {
        if !self.missed {
            return Vec::new();
        }
        let last = self.leased.iter().map(|(candidate, _)| candidate).max();
        let claimed: HashSet<_> = self.leased.iter().map(|(candidate, _)| &candidate.id).collect();
        let candidates = request.shards.iter().flat_map(|(_, candidates)| candidates);
        let mut ids: Vec<_> = candidates
            .filter(|candidate| last.is_none_or(|last| *candidate < last) && !claimed.contains(&candidate.id))
            .map(|candidate| &candidate.id)
            .collect();
        ids.sort_unstable();
        ids
    }
}

impl SqlStore {
    pub(super) async fn lease(&self, now: Now, claim: &Claim) -> Result<Claimed, StoreError> {
        self.check_open()?;
        let lane = lane_text(&claim.lane);
        let lane_no = self.claim_number(&claim.lane, &lane).await?;
        self.serve(now, &lane).await?;
        let shards = self.shards_of(&claim.lane, &lane);
        let (seen, session) = self
            .read_with_session(|borrowed| {
                borrowed.session.begin_early();
                Box::pin(self.peek(borrowed.session, lane_no, claim.limit, &shards))
            })
            .await?;
        let Some(seen) = seen else {
            session.end().await;
            return Ok(Claimed::default());
        };
        let mut selected = select_claims(&seen, now.wall(), claim.limit.min(BATCH_MAX));
        let beside = next_beside(&seen, &selected);
        let behind = next_behind(&seen, &selected);
        if selected.is_empty() {
            session.end().await;
            // Behind rows that took the places there may be messages.
            let next = if self.bury_unreadable(now).await? { Some(now.wall()) } else { beside };
            return Ok(Claimed { messages: Vec::new(), next });
        }
        let take = |(index, candidates): (usize, Vec<&(ClaimOrder, ())>)| {
            (shards[index], candidates.into_iter().map(|(candidate, ())| candidate.clone()).collect())
        };
        let shards = std::mem::take(&mut selected).into_iter().map(take).collect();
        let request =
            ClaimRequest { claim, lane: &lane, lane_no, call: self.calls.next(), shards, versions: None };
        let claims = self.take_from(Some(session), now, &request).await?;
        let missed = claims.again(now);
        if let Err(error) = self.bury_unreadable(now).await {
            // What was claimed is handed out: its leases run.
            tracing::warn!(lane, %error, "unreadable rows not made dead letters; tried again at the next sweep");
        }
        let messages = claims.leased.into_iter().map(|(_, leased)| leased).collect();
        Ok(Claimed { messages, next: [beside, behind, missed].into_iter().flatten().min() })
    }

    /// Claims the selected messages that no other caller has claimed since.
    pub(crate) async fn take(
        &self,
        now: Now,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        self.take_from(None, now, request).await
    }

    async fn take_from(
        &self,
        session: Option<Session>,
        now: Now,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, StoreError> {
        let ids = request.shards.iter().flat_map(|(_, candidates)| candidates).map(|candidate| &candidate.id);
        let unconfirmed_call = self.unconfirmed.unless_answered(request.call, ids.collect());
        let outcome = self
            .transact_from(session, |borrowed| Box::pin(self.take_in_one(borrowed.session, now, request)))
            .await;
        let mut claims = unconfirmed_call.answered(outcome)?;
        self.writes.count_damaged(claims.damaged);
        for (shard, token) in &claims.lost {
            self.nodes.lose_lease(request.lane, *shard, *token);
        }
        let passed_over = claims.passed_over(request);
        if !passed_over.is_empty() {
            let moved = self.move_misplaced(now, request, passed_over).await;
            match moved {
                // What was claimed is handed out: its leases run.
                Err(error) if !claims.leased.is_empty() => {
                    tracing::warn!(lane = request.lane, %error, "search for misplaced messages failed");
                }
                moved => moved?,
            }
        }
        claims.leased.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(claims)
    }

    /// The shards of a lane that this node may claim from, and by which lease.
    pub(crate) fn shards_of(&self, lane: &Lane, name: &str) -> Vec<Owned> {
        self.nodes.claimable(lane, name, self.options.shards)
    }

    /// The first of a lane in each of the shards, and one more to know what comes next; nothing if the lane is paused.
    async fn peek(
        &self,
        session: &mut Session,
        lane_no: i64,
        limit: usize,
        shards: &[Owned],
    ) -> Result<Option<Vec<ShardCandidates>>, Fault> {
        let limit = limit.min(BATCH_MAX);
        let count = each(limit, shards.len().max(1)) + 1;
        let queues: Vec<_> = shards.iter().map(|(shard, _)| queue_no(lane_no, *shard)).collect();
        let reply = session.script(vec![first_of(self.dialect(), lane_no, &queues, count)]).await?;
        let mut seen: HashMap<i64, (Vec<(ClaimOrder, ())>, usize)> = HashMap::new();
        for row in reply.into_iter().flat_map(|reply| reply.rows) {
            let (queue, at) = (row.int(0)?, row.int(1)?);
            if queue < 0 {
                if at != 0 {
                    return Ok(None);
                }
                continue;
            }
            let (candidates, rows) = seen.entry(queue).or_default();
            *rows += 1;
            // One that is no id holds up no other.
            let Some(id) = self.id_in(&row, 3)? else { continue };
            let candidate = ClaimOrder {
                ready: Timestamp::from_millis(at as u64 / 1000),
                rank: row.int(2)? as u8,
                id,
                lost: row.int(4)? != 0,
            };
            candidates.push((candidate, ()));
        }
        let of_shard = |(shard, _): &Owned| {
            let (mut candidates, rows) = seen.remove(&queue_no(lane_no, *shard)).unwrap_or_default();
            candidates.sort_by(|(a, ()), (b, ())| a.cmp(b));
            ShardCandidates { cut: rows == count, candidates }
        };
        Ok(Some(shards.iter().map(of_shard).collect()))
    }

    async fn take_in_one(
        &self,
        session: &mut Session,
        now: Now,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimOutcome, Fault> {
        let mut claims = ClaimOutcome::default();
        if request.versions.is_some() && self.is_paused(session, request.lane_no).await? {
            return Ok(ClaimOutcome { paused: true, ..claims });
        }
        let shards = self.still_owned(session, request, &mut claims).await?;
        let mut candidates: BTreeMap<&MessageId, (&ClaimOrder, Owned)> = BTreeMap::new();
        for (owned, part) in &shards {
            candidates.extend(part.iter().map(|candidate| (&candidate.id, (candidate, *owned))));
        }
        if self.dialect() == Dialect::Postgres && request.versions.is_none() {
            return self.claim_at_once(session, now, request, &candidates, claims).await;
        }
        let slot = self.slots.take();
        let ids: Vec<_> = candidates.keys().copied().collect();
        let found = self
            .lock_within_budget(session, &ids, |id| candidates.get(id).map(|(candidate, _)| *candidate))
            .await?;
        claims.missed = found.rows.len() < ids.len();
        let mut deltas = CounterDeltas::default();
        for bad in found.bad.iter().filter(|bad| bad.waits()) {
            self.bury(session, now, bad, &mut deltas).await?;
            claims.damaged += 1;
        }
        let token = self.calls.next_token(self.time.tick(now));
        let mut claimed = Vec::new();
        for mut row in found.rows {
            let Some((candidate, (shard, lease))) = candidates.get(row.id()).copied() else { continue };
            let is_known = |versions: &HashMap<_, _>| versions.get(row.id()) == Some(&row.version);
            let waits = row.record.state == State::Pending
                && !row.is_raw
                && row.record.ready == candidate.ready
                && request.versions.as_ref().is_none_or(is_known);
            // A number that this node knows from before a failover may be another lane's by now.
            let is_of_lane =
                row.lane_no == request.lane_no && row.record.message.lane() == request.claim.lane;
            if !waits || !is_of_lane {
                claims.missed = true;
                continue;
            }
            row.token = token.max(row.token + 1);
            deltas.pending(row.lane_no, row.record.ready, -1);
            claimed.push(row.id().clone());
            let fence = lease.map(|token| Fence { scope: self.scope(request.lane, shard), token });
            claims.leased.push((candidate.clone(), leased(row, shard, fence)));
        }
        let mut script = self.mark_claimed(now, request, token, &claimed);
        script.extend(self.counting(session, &slot, deltas));
        if !script.is_empty() {
            session.script(script).await?;
        }
        Ok(claims)
    }

    /// The shards that this node may still claim from; others cannot take them before this transaction is over.
    async fn still_owned<'t>(
        &self,
        session: &mut Session,
        request: &'t ClaimRequest<'_>,
        claims: &mut ClaimOutcome,
    ) -> Result<Vec<&'t (Owned, Vec<ClaimOrder>)>, Fault> {
        if matches!(request.claim.lane, Lane::Queue(_)) {
            return Ok(request.shards.iter().collect());
        }
        let mut select =
            Statement::new(self.dialect(), "SELECT shard, token FROM duly_shard_lease WHERE lane_no = ");
        select.bind(request.lane_no).push(" AND instance = ").bind(self.options.instance as i64);
        select.push(" AND shard IN (");
        select.bind_all(request.shards.iter().map(|((shard, _), _)| i64::from(*shard))).push(")");
        select.push_as(" LOCK IN SHARE MODE", " FOR SHARE");
        let mut owned = HashMap::new();
        for row in session.rows(select).await? {
            owned.insert(row.int(0)?, row.int(1)? as u64);
        }
        let is_owned =
            |((shard, lease), _): &(Owned, Vec<ClaimOrder>)| owned.get(&i64::from(*shard)).copied() == *lease;
        let (kept, lost): (Vec<_>, Vec<_>) = request.shards.iter().partition(|part| is_owned(part));
        claims.lost = lost.iter().map(|((shard, lease), _)| (*shard, lease.unwrap_or_default())).collect();
        Ok(kept)
    }

    async fn is_paused(&self, session: &mut Session, lane_no: i64) -> Result<bool, Fault> {
        let mut select = Statement::new(self.dialect(), "SELECT paused FROM duly_lane WHERE lane_no = ");
        select.bind(lane_no);
        Ok(session.rows(select).await?.first().map_or(Ok(0), |row| row.int(0))? != 0)
    }

    /// The number of a call that claims.
    pub(crate) fn next_call(&self) -> i64 {
        self.calls.next()
    }

    fn mark_claimed(
        &self,
        now: Now,
        request: &ClaimRequest<'_>,
        token: u64,
        ids: &[MessageId],
    ) -> Vec<Statement> {
        let mark = |ids: &[MessageId]| {
            let mut update = Statement::written(self.dialect(), "UPDATE delay_message ");
            update.push_as("FORCE INDEX (PRIMARY) ", "").push("SET ");
            self.claimed_by(&mut update, now, request, token);
            update.push(" WHERE message_id IN (").bind_all(ids.iter().map(MessageId::as_str)).push(")");
            update
        };
        ids.chunks(100).map(mark).collect()
    }

    /// What a claim writes into a row.
    pub(super) fn claimed_by(
        &self,
        update: &mut Statement,
        now: Now,
        request: &ClaimRequest<'_>,
        token: u64,
    ) {
        let (end, span) = self.lease_end(now, request.claim.lease);
        let holder = match request.claim.holder {
            Holder::Process => self.options.instance as i64,
            Holder::Client | Holder::ClientOfMany => 0,
        };
        let count = request.shards.iter().map(|(_, candidates)| candidates.len()).sum();
        let rank = if request.claim.holder.holds_alone(count) { ONLY_CLAIMED } else { 0 };
        update.push("queue_no = -1, queue_at = ").bind(end as i64);
        update
            .push(", queue_rank = ")
            .bind(rank)
            .push(", version = version + 1, token = GREATEST(token + 1, ");
        update.bind(token as i64).push("), lease_span_us = ").bind(span as i64);
        update.push(", holder = ").bind(holder).push(", claim_call = ").bind(request.call);
        update.push(", unindexed_at = NULL").push_as("", ", update_time = CURRENT_TIMESTAMP(3)");
    }

    /// The scope of the fencing tokens of a lane and shard, as targets see it.
    pub(super) fn scope(&self, lane: &str, shard: u16) -> Arc<str> {
        format!("{}/{lane}/{shard}", self.database.generation).into()
    }
}

/// Whether a lane is paused, and the first rows of its queues.
fn first_of(dialect: Dialect, lane_no: i64, queues: &[i64], count: usize) -> Statement {
    let mut select = Statement::written(
        dialect,
        "SELECT -1 AS queue_no, paused AS queue_at, 0 AS queue_rank, NULL AS message_id, 0 AS lost FROM duly_lane WHERE lane_no = ",
    );
    select.bind(lane_no);
    let columns =
        "SELECT queue_no, queue_at, queue_rank, message_id, lost FROM delay_message WHERE queue_no = ";
    let first = format!(" ORDER BY queue_at, queue_rank, message_id LIMIT {count})");
    if dialect == Dialect::Postgres && !queues.is_empty() {
        // Planned once for all queues. MariaDB does not know these words.
        select.push(" UNION ALL SELECT first.* FROM (VALUES (CAST(").bind_all(queues[..1].iter().copied());
        select.push(" AS BIGINT))");
        for queue in &queues[1..] {
            select.push(", (").bind(*queue).push(")");
        }
        select.push(") AS queue (no) CROSS JOIN LATERAL (").push(columns).push("queue.no").push(&first);
        select.push(" AS first");
        return select;
    }
    for queue in queues {
        select.push(" UNION ALL (").push(columns).bind(*queue).push(&first);
    }
    select
}

pub(super) fn leased(row: Row, shard: u16, fence: Option<Fence>) -> LeasedMessage {
    let Row { record, token, lost, .. } = row;
    let receipt = Receipt { shard, token, id: record.message.id.clone() };
    LeasedMessage {
        receipt,
        ready: record.ready,
        attempt: record.attempts.saturating_add(1),
        lost,
        lost_at: Attempt::lost_at(&record.history),
        fence,
        message: record.message,
    }
}
