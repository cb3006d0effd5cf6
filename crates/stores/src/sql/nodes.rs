//! The nodes that share a store: heartbeats and shard leases.
//!
//! As with Redis: a node writes heartbeats, and counts as alive for as long as a lease lasts. The shards of each lane to a sink are
//! [assigned](duly_core::assign_shards) to the nodes that serve it. Each shard lease has a fencing token that every claim is checked by,
//! in the same transaction.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use duly_core::{
    MessageId, Monotonic, NodeStatus, Now,
    store::{StoreError, StoreErrorKind},
};

use super::{
    SqlStore,
    connection::{Session, Statement},
    fault::Fault,
    row::IN_FLIGHT,
    sweep::report_failed,
};
use crate::shared::{
    membership::{ASK_AGAIN, JoinKind, display_order, read_status, status_text},
    shard_leases::{LeaseRequest, Member},
};

/// Protocol version of nodes; nodes of different versions refuse each other.
const PROTOCOL: i64 = 1;
/// Without hints from other nodes, each sweeps this often for what the others accepted.
const SWEEP_WITHOUT_HINTS: Duration = Duration::from_millis(100);

/// The result of a heartbeat.
struct SignedIn {
    /// All live nodes.
    members: Vec<Member>,
    /// Until when the heartbeat before it made this node count as alive, if it was found.
    found: Option<i64>,
    alive_until: i64,
}

/// Why a node was refused.
enum Refused {
    /// Another process has joined with its name.
    Replaced,
    /// This node, of another version, is alive.
    OtherVersion(String),
}

/// The last heartbeat of this node, and what the nodes found then.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<PresenceState>);

#[derive(Debug, Default)]
struct PresenceState {
    at: Option<Monotonic>,
    serves: BTreeSet<String>,
    nodes: usize,
    /// Until when the last committed heartbeat makes this node count as alive.
    alive_until: Option<i64>,
    /// Whether this node is the first by name.
    is_first: bool,
    /// When each chore was last done.
    chores: [Option<Monotonic>; 4],
}

/// Maintenance that a sweep does from time to time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Chore {
    /// Ask how much is in flight.
    CountPending = 0,
    /// Remove counters that are over.
    TidyCounters = 1,
    /// Check whether there is room again, after there was none.
    ProbeRoom = 2,
    /// Forget lanes without messages.
    ForgetLanes = 3,
}

impl Chore {
    fn every(self) -> Duration {
        match self {
            Self::CountPending => Duration::from_secs(2),
            Self::TidyCounters => Duration::from_secs(60),
            Self::ProbeRoom => Duration::from_secs(1),
            Self::ForgetLanes => Duration::from_secs(300),
        }
    }
}

impl Presence {
    fn lock(&self) -> MutexGuard<'_, PresenceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores which nodes are alive.
    pub(super) fn update(&self, members: &[Member]) {
        let first = members.iter().min_by(|a, b| a.status.name.cmp(&b.status.name));
        let mut state = self.lock();
        state.is_first = first.is_some_and(|member| member.status.this);
        state.nodes = members.len();
    }

    /// Stores which lanes were announced, and when.
    fn record_announced(&self, now: Now, serves: &BTreeSet<String>) {
        let mut state = self.lock();
        state.at = Some(now.mono());
        state.serves.clone_from(serves);
    }

    /// Whether it is time for a chore, which then counts as done.
    pub(super) fn is_time_for(&self, chore: Chore, now: Now) -> bool {
        let last = &mut self.lock().chores[chore as usize];
        let is_time = last.is_none_or(|at| now.mono().since(at) >= chore.every());
        if is_time {
            *last = Some(now.mono());
        }
        is_time
    }

    /// Whether this node does the maintenance that one node does for all.
    pub(super) fn is_first(&self) -> bool {
        self.lock().is_first
    }

    /// Whether the last heartbeat found no other node.
    pub(super) fn is_alone(&self) -> bool {
        self.lock().nodes <= 1
    }
}

impl SqlStore {
    /// Writes the heartbeat of this node with the lanes that it serves, if it is time to, and requests its shard leases. Returns when
    /// this must be done again.
    pub(super) async fn announce(&self, now: Now, serves: BTreeSet<String>) -> Result<Duration, StoreError> {
        let _guard = self.nodes.requesting.lock().await;
        let often = self.options.lease / 4;
        let is_announced = {
            let state = self.presence.lock();
            let fresh = state.at.is_some_and(|at| now.mono().since(at) < often / 2);
            fresh && state.serves == serves && !self.nodes.lock().is_waiting()
        };
        if !is_announced {
            self.request_leases(now, serves).await?;
        }
        let soon =
            if self.presence.is_alone() || self.hints.are_received() { often } else { SWEEP_WITHOUT_HINTS };
        Ok(if self.nodes.lock().is_waiting() { ASK_AGAIN.min(soon) } else { soon.min(often) })
    }

    async fn request_leases(&self, now: Now, serves: BTreeSet<String>) -> Result<(), StoreError> {
        let members = self.heartbeat(now, JoinKind::Again, &serves).await?;
        self.presence.update(&members);
        self.presence.record_announced(now, &serves);
        let alive: HashSet<_> = members.iter().map(|member| member.instance as i64).collect();
        let requests = self.nodes.lock().assign(members, serves, self.options.shards);
        if !requests.is_empty() {
            let lanes: BTreeSet<_> =
                requests.values().flatten().map(|request| request.lane.clone()).collect();
            self.number_lanes(lanes).await?;
            let tokens = self
                .transact(|borrowed| Box::pin(self.own(borrowed.session, now, &alive, &requests)))
                .await?;
            let mut state = self.nodes.lock();
            for (shard, requests) in &requests {
                state.apply_tokens(*shard, requests, &tokens[shard]);
            }
        }
        self.nodes.lock().remove_unserved();
        Ok(())
    }

    /// Announces a lane that is claimed from before a sweep announced it.
    pub(crate) async fn serve(&self, now: Now, lane: &str) -> Result<(), StoreError> {
        if let Some((_guard, serves)) = self.nodes.unannounced(lane).await {
            self.request_leases(now, serves).await?;
        }
        Ok(())
    }

    /// Acquires and releases shard leases. Returns, per shard, the tokens by which this node has them now, 0 for none.
    async fn own(
        &self,
        session: &mut Session,
        now: Now,
        alive: &HashSet<i64>,
        requests: &BTreeMap<u16, Vec<LeaseRequest>>,
    ) -> Result<BTreeMap<u16, Vec<u64>>, Fault> {
        let number = |lane: &str| self.lanes.number(lane).ok_or_else(|| Fault::garbled("a lane"));
        let lanes: BTreeSet<_> =
            requests.values().flatten().map(|request| number(&request.lane)).collect::<Result<_, _>>()?;
        let held = self.lock_leases(session, &lanes).await?;
        let busy = self.busy(session, &lanes).await?;
        let me = self.options.instance as i64;
        let mut answers = BTreeMap::new();
        for (shard, requests) in requests {
            let mut tokens = Vec::with_capacity(requests.len());
            for LeaseRequest { lane, wanted } in requests {
                let key = (number(lane)?, *shard);
                let (holder, token) = held.get(&key).copied().unwrap_or_default();
                tokens.push(if holder == Some(me) {
                    // Deliveries in flight use the old shard lease, which stays until they end.
                    let stays = *wanted || busy.contains(&key);
                    if !stays {
                        self.set_lease(session, key, None, token).await?;
                    }
                    if stays { token } else { 0 }
                } else if *wanted && holder.is_none_or(|holder| !alive.contains(&holder)) {
                    let token = self.calls.next_token(self.time.tick(now)).max(token + 1);
                    self.set_lease(session, key, Some(me), token).await?;
                    token
                } else {
                    0
                });
            }
            answers.insert(*shard, tokens);
        }
        Ok(answers)
    }

    /// The owners of the shard leases of these lanes, locked until the end of the transaction.
    async fn lock_leases(
        &self,
        session: &mut Session,
        lanes: &BTreeSet<i64>,
    ) -> Result<HashMap<(i64, u16), (Option<i64>, u64)>, Fault> {
        let mut select = Statement::new(
            self.dialect(),
            "SELECT lane_no, shard, instance, token FROM duly_shard_lease WHERE lane_no IN (",
        );
        select.bind_all(lanes.iter().copied()).push(") ORDER BY lane_no, shard FOR UPDATE");
        let mut held = HashMap::new();
        for row in session.rows(select).await? {
            held.insert((row.int(0)?, row.int(1)? as u16), (row.maybe_int(2)?, row.int(3)? as u64));
        }
        let missing: Vec<_> = lanes
            .iter()
            .flat_map(|lane| (0..self.options.shards).map(|shard| (*lane, shard)))
            .filter(|key| !held.contains_key(key))
            .collect();
        if missing.is_empty() {
            return Ok(held);
        }
        for part in missing.chunks(200) {
            let mut insert = Statement::new(self.dialect(), "INSERT ");
            insert.push_as("IGNORE ", "").push("INTO duly_shard_lease (lane_no, shard, token) VALUES ");
            for (index, (lane_no, shard)) in part.iter().enumerate() {
                insert.push(if index == 0 { "(" } else { ", (" });
                insert.bind_all([*lane_no, i64::from(*shard), 0]).push(")");
            }
            insert.push_as("", " ON CONFLICT (lane_no, shard) DO NOTHING");
            session.run(insert).await?;
        }
        // Somebody may have been faster, and taken them.
        Box::pin(self.lock_leases(session, lanes)).await
    }

    async fn set_lease(
        &self,
        session: &mut Session,
        (lane_no, shard): (i64, u16),
        instance: Option<i64>,
        token: u64,
    ) -> Result<(), Fault> {
        let mut update = Statement::new(self.dialect(), "UPDATE duly_shard_lease SET instance = ");
        update.bind(instance).push(", token = ").bind(token as i64);
        update.push(" WHERE lane_no = ").bind(lane_no).push(" AND shard = ").bind(i64::from(shard));
        session.run(update).await?;
        Ok(())
    }

    /// Of which of these lanes something is in flight, and in which shards.
    async fn busy(&self, session: &mut Session, lanes: &BTreeSet<i64>) -> Result<HashSet<(i64, u16)>, Fault> {
        let mut select =
            Statement::new(self.dialect(), "SELECT lane_no, message_id FROM delay_message WHERE queue_no = ");
        select.bind(IN_FLIGHT).push(" AND lane_no IN (").bind_all(lanes.iter().copied()).push(")");
        let mut busy = HashSet::new();
        for row in session.rows(select).await? {
            if let Ok(id) = MessageId::parse(&row.text(1)?) {
                busy.insert((row.int(0)?, self.shard_of(&id)));
            }
        }
        Ok(busy)
    }

    /// Writes the heartbeat of this node. Returns all live nodes.
    pub(super) async fn heartbeat(
        &self,
        now: Now,
        join_kind: JoinKind,
        serves: &BTreeSet<String>,
    ) -> Result<Vec<Member>, StoreError> {
        self.check_open()?;
        if let Some(clock) = self.time.clock() {
            let sent_at = clock.machine().mono();
            clock.record_reply(
                sent_at,
                self.read(|borrowed| Box::pin(self.server_time(borrowed.session))).await?,
            );
        }
        let status = self.own_status(serves);
        let unconfirmed = self.lanes.unconfirmed();
        let signed_in =
            self.transact(|borrowed| Box::pin(self.sign_in(borrowed.session, now, join_kind, &status))).await;
        self.writes.heartbeat(&signed_in);
        match signed_in? {
            Ok(SignedIn { members, found, alive_until }) => {
                let wrote = self.presence.lock().alive_until.replace(alive_until);
                let is_lost = wrote.is_some_and(|wrote| found.is_none_or(|found| found < wrote));
                if is_lost {
                    // Either others removed this node as dead, or a failover lost its last heartbeat, and maybe more.
                    tracing::warn!("heartbeat missing in the database; reloading lane numbers");
                    self.lanes.unconfirm_all();
                }
                // The heartbeat is written: this node keeps its shards. What is not confirmed now is at the next one.
                let confirmed =
                    self.confirm_lanes(if is_lost { self.lanes.unconfirmed() } else { unconfirmed }).await;
                report_failed("confirmation of lane numbers", confirmed);
                Ok(members)
            }
            Err(Refused::Replaced) => Err(self.membership.replaced(&self.options.node)),
            Err(Refused::OtherVersion(other)) => Err(of_another_version(&other)),
        }
    }

    /// The server's time, in microseconds.
    pub(super) async fn server_time(&self, session: &mut Session) -> Result<u64, Fault> {
        let mut select = Statement::new(self.dialect(), "SELECT ");
        select.push_as(
            "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
            "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
        );
        let rows = session.rows(select).await?;
        rows.first().map_or_else(|| Err(Fault::garbled("the time")), |row| Ok(row.int(0)? as u64))
    }

    async fn sign_in(
        &self,
        session: &mut Session,
        now: Now,
        join_kind: JoinKind,
        status: &str,
    ) -> Result<Result<SignedIn, Refused>, Fault> {
        let (me, name) = (self.options.instance as i64, self.options.node.as_str());
        let tick = self.time.tick(now) as i64;
        // One at a time: two that come at the same moment would not see each other.
        let lock = "SELECT value FROM duly_store WHERE name = 'generation' FOR UPDATE";
        session.rows(Statement::new(self.dialect(), lock)).await?;
        let select = "SELECT instance, name, protocol, alive_until, status FROM duly_node ORDER BY instance FOR UPDATE";
        let (mut members, mut dead, mut found) = (Vec::new(), Vec::new(), None);
        for row in session.rows(Statement::new(self.dialect(), select)).await? {
            let instance = row.int(0)?;
            let other = String::from_utf8_lossy(&row.bytes(1)?).into_owned();
            if instance == me {
                found = Some(row.int(3)?);
                continue;
            }
            // One that comes with the name of a node was started again, so the one before it has ended.
            if row.int(3)? <= tick || (other == name && join_kind == JoinKind::New) {
                dead.push(instance);
            } else if other == name {
                return Ok(Err(Refused::Replaced));
            } else if row.int(2)? != PROTOCOL && join_kind == JoinKind::New {
                return Ok(Err(Refused::OtherVersion(other)));
            } else {
                members.extend(read_member(instance as u64, other, &row.text(4)?, false));
            }
        }
        if !dead.is_empty() {
            let mut delete = Statement::new(self.dialect(), "DELETE FROM duly_node WHERE instance IN (");
            delete.bind_all(dead.iter().copied()).push(")");
            session.run(delete).await?;
            self.forget_calls(session, &dead).await?;
        }
        let life = i64::try_from(self.options.lease.as_micros()).unwrap_or(i64::MAX >> 12);
        let end = self.time.latest_tick(now) as i64 + life;
        let mut insert = Statement::new(
            self.dialect(),
            "INSERT INTO duly_node (instance, name, protocol, alive_until, status) VALUES (",
        );
        insert.bind(me).push(", ").bind(name.as_bytes()).push(", ").bind(PROTOCOL).push(", ");
        insert.bind(end).push(", ").bind(status).push(")");
        insert.push_as(
            " ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until), status = VALUES(status)",
            " ON CONFLICT (instance) DO UPDATE SET alive_until = EXCLUDED.alive_until, status = EXCLUDED.status",
        );
        session.run(insert).await?;
        members.extend(read_member(me as u64, name.to_owned(), status, true));
        Ok(Ok(SignedIn { members, found, alive_until: end }))
    }

    /// The report of this node, in lines.
    fn own_status(&self, serves: &BTreeSet<String>) -> String {
        status_text(self.nodes.lock().owned(), self.time.skew_us(), serves)
    }

    pub(super) async fn all_nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        self.check_open()?;
        let select = || Statement::new(self.dialect(), "SELECT instance, name, status FROM duly_node");
        let mut nodes = Vec::new();
        for row in self.read(|borrowed| Box::pin(borrowed.session.rows(select()))).await? {
            let (instance, name) = (row.int(0)?, String::from_utf8_lossy(&row.bytes(1)?).into_owned());
            let is_this = instance == self.options.instance as i64;
            let member = read_member(instance as u64, name, &row.text(2)?, is_this);
            nodes.extend(member.map(|member| member.status));
        }
        Ok(display_order(nodes))
    }

    /// Removes this node. If that fails, its heartbeat expires.
    pub(super) async fn leave(&self) {
        let delete = || {
            let mut delete = Statement::new(self.dialect(), "DELETE FROM duly_node WHERE instance = ");
            delete.bind(self.options.instance as i64);
            delete
        };
        let work = async {
            let mut session = self.link.session().await?;
            session.run(delete()).await?;
            self.forget_calls(&mut session, &[self.options.instance as i64]).await
        };
        let left = self.in_time(work, Fault::unanswered).await;
        if let Err(fault) = left {
            tracing::debug!(?fault, "shard lease release failed");
        }
    }
}

fn of_another_version(other: &str) -> StoreError {
    let what = format!(
        "the node {other:?} works on this store in another way than this version does; stop the nodes of one version before \
         those of another are started"
    );
    StoreError::new(StoreErrorKind::Unavailable, what)
}

/// Reads what [`SqlStore::status`] wrote.
fn read_member(instance: u64, name: String, status: &str, this: bool) -> Option<Member> {
    Some(Member { instance, status: read_status(&name, this, status)? })
}
