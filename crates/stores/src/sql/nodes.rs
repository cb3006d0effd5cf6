//! The nodes that share a store: who is there, and who delivers what.
//!
//! As with Redis: a node says again and again that it is there, and is taken to be there for as long as a lease lasts. The shards of
//! each lane to a sink are [shared](duly_core::assign_shards) among the nodes that serve it, and each taking has a fencing token that every
//! claim is checked by, in the same transaction.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
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
    work::{read, transact},
};
use crate::shared::{
    lane::lane_of,
    shard_leases::{Member, Wish, is_to_a_sink},
};

/// The version of what is done to the data. Nodes of different versions do not work on one store together.
const PROTOCOL: i64 = 1;
/// A node tells of so many of its lanes, sinks first.
const LANES_MAX: usize = 200;
/// What is to be this node's and is still another's is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Where no other node can be heard, each looks this often at what the others accepted.
const LOOK_OFTEN: Duration = Duration::from_millis(100);

/// How a node comes: a process that has just started, or one that says that it is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    New,
    Again,
}

/// What a heartbeat saw and wrote.
struct SignedIn {
    /// All nodes that are there.
    there: Vec<Member>,
    /// Until when the heartbeat before it said that this node is there, if it was found.
    found: Option<i64>,
    life_end: i64,
}

/// When this node last said that it is there, and what.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    at: Option<Monotonic>,
    serves: BTreeSet<String>,
    nodes: usize,
    /// Until when the last heartbeat that was committed says that this node is there.
    life_end: Option<i64>,
    /// Whether this node is the first by name.
    is_first: bool,
    /// When what is now and then to be done was last done.
    chores: [Option<Monotonic>; 4],
}

/// What a sweep does now and then.
#[derive(Debug, Clone, Copy)]
pub(super) enum Chore {
    /// Ask how much is held.
    CountHeld = 0,
    /// Remove counters that are over.
    TidyCounters = 1,
    /// See whether there is room again, after there was none.
    LookForRoom = 2,
    /// Forget lanes without messages.
    ForgetLanes = 3,
}

impl Chore {
    fn every(self) -> Duration {
        match self {
            Self::CountHeld => Duration::from_secs(2),
            Self::TidyCounters => Duration::from_secs(60),
            Self::LookForRoom => Duration::from_secs(1),
            Self::ForgetLanes => Duration::from_secs(300),
        }
    }
}

impl Presence {
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of who is there.
    pub(super) fn see(&self, there: &[Member]) {
        let first = there.iter().min_by(|a, b| a.status.name.cmp(&b.status.name));
        let mut said = self.lock();
        said.is_first = first.is_some_and(|member| member.status.this);
        said.nodes = there.len();
    }

    /// Takes note of what was said.
    fn say(&self, now: Now, serves: &BTreeSet<String>) {
        let mut said = self.lock();
        said.at = Some(now.mono());
        said.serves.clone_from(serves);
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

    /// What one node does for all is this one's to do.
    pub(super) fn is_first(&self) -> bool {
        self.lock().is_first
    }

    /// No other node was there when this one last looked.
    pub(super) fn is_alone(&self) -> bool {
        self.lock().nodes <= 1
    }
}

impl SqlStore {
    /// Says that this node is there and serves these lanes, if it is time to, and sees to it that it delivers its share of them. Gives
    /// how soon this must be done again.
    pub(super) async fn announce(&self, now: Now, serves: BTreeSet<String>) -> Result<Duration, StoreError> {
        let _asking = self.nodes.asking.lock().await;
        let often = self.options.lease / 4;
        let is_said = {
            let said = self.presence.lock();
            let fresh = said.at.is_some_and(|at| now.mono().since(at) < often / 2);
            fresh && said.serves == serves && !self.nodes.lock().is_waiting()
        };
        if !is_said {
            self.ask_for_rights(now, serves).await?;
        }
        let soon = if self.presence.is_alone() || self.hints.are_heard() { often } else { LOOK_OFTEN };
        Ok(if self.nodes.lock().is_waiting() { ASK_AGAIN.min(soon) } else { soon.min(often) })
    }

    async fn ask_for_rights(&self, now: Now, serves: BTreeSet<String>) -> Result<(), StoreError> {
        let there = self.be_there(now, Coming::Again, &serves).await?;
        self.presence.see(&there);
        self.presence.say(now, &serves);
        let alive: HashSet<_> = there.iter().map(|member| member.instance as i64).collect();
        let wishes = self.nodes.lock().share_out(there, serves, self.options.shards);
        if !wishes.is_empty() {
            let lanes: BTreeSet<_> = wishes.values().flatten().map(|wish| wish.lane.clone()).collect();
            self.number_lanes(lanes).await?;
            let tokens = transact!(self, |session| self.own(&mut session, now, &alive, &wishes))?;
            let mut state = self.nodes.lock();
            for (shard, wishes) in &wishes {
                state.tell(*shard, wishes, &tokens[shard]);
            }
        }
        self.nodes.lock().tidy();
        Ok(())
    }

    /// A lane is claimed from that was not announced: by somebody who does not sweep, or has not yet.
    pub(crate) async fn serve(&self, now: Now, lane: &str) -> Result<(), StoreError> {
        if is_to_a_sink(lane) && !self.nodes.serves(lane) {
            let _asking = self.nodes.asking.lock().await;
            let mut serves = self.nodes.lock().serves.clone();
            // Another call may have announced it while this one waited.
            if serves.insert(lane.to_owned()) {
                self.ask_for_rights(now, serves).await?;
            }
        }
        Ok(())
    }

    /// Takes and gives back rights. Gives per shard the tokens by which this node has them now, 0 for none.
    async fn own(
        &self,
        session: &mut Session,
        now: Now,
        alive: &HashSet<i64>,
        wishes: &BTreeMap<u16, Vec<Wish>>,
    ) -> Result<BTreeMap<u16, Vec<u64>>, Fault> {
        let number = |lane: &str| self.lanes.number(lane).ok_or_else(|| Fault::garbled("a lane"));
        let lanes: BTreeSet<_> =
            wishes.values().flatten().map(|wish| number(&wish.lane)).collect::<Result<_, _>>()?;
        let held = self.lock_rights(session, &lanes).await?;
        let busy = self.busy(session, &lanes).await?;
        let me = self.options.instance as i64;
        let mut answers = BTreeMap::new();
        for (shard, wishes) in wishes {
            let mut tokens = Vec::with_capacity(wishes.len());
            for Wish { lane, wanted } in wishes {
                let place = (number(lane)?, *shard);
                let (holder, token) = held.get(&place).copied().unwrap_or_default();
                tokens.push(if holder == Some(me) {
                    // What is on its way to the target goes by the old right: that stays until it has arrived.
                    let stays = *wanted || busy.contains(&place);
                    if !stays {
                        self.set_right(session, place, None, token).await?;
                    }
                    if stays { token } else { 0 }
                } else if *wanted && holder.is_none_or(|holder| !alive.contains(&holder)) {
                    let token = self.tokens.next(self.time.tick(now)).max(token + 1);
                    self.set_right(session, place, Some(me), token).await?;
                    token
                } else {
                    0
                });
            }
            answers.insert(*shard, tokens);
        }
        Ok(answers)
    }

    /// Who has which right of these lanes; nobody else changes that until the end of the transaction.
    async fn lock_rights(
        &self,
        session: &mut Session,
        lanes: &BTreeSet<i64>,
    ) -> Result<HashMap<(i64, u16), (Option<i64>, u64)>, Fault> {
        let mut select = Statement::new(
            self.dialect(),
            "SELECT lane_no, shard, instance, token FROM duly_right WHERE lane_no IN (",
        );
        select.bind_all(lanes.iter().copied()).push(") ORDER BY lane_no, shard FOR UPDATE");
        let mut held = HashMap::new();
        for row in session.rows(select).await? {
            held.insert((row.int(0)?, row.int(1)? as u16), (row.maybe_int(2)?, row.int(3)? as u64));
        }
        let missing: Vec<_> = lanes
            .iter()
            .flat_map(|lane| (0..self.options.shards).map(|shard| (*lane, shard)))
            .filter(|place| !held.contains_key(place))
            .collect();
        if missing.is_empty() {
            return Ok(held);
        }
        for part in missing.chunks(200) {
            let mut insert = Statement::new(self.dialect(), "INSERT ");
            insert.push_as("IGNORE ", "").push("INTO duly_right (lane_no, shard, token) VALUES ");
            for (place, (lane_no, shard)) in part.iter().enumerate() {
                insert.push(if place == 0 { "(" } else { ", (" });
                insert.bind_all([*lane_no, i64::from(*shard), 0]).push(")");
            }
            insert.push_as("", " ON CONFLICT (lane_no, shard) DO NOTHING");
            session.run(insert).await?;
        }
        // Somebody may have been faster, and taken them.
        Box::pin(self.lock_rights(session, lanes)).await
    }

    async fn set_right(
        &self,
        session: &mut Session,
        (lane_no, shard): (i64, u16),
        instance: Option<i64>,
        token: u64,
    ) -> Result<(), Fault> {
        let mut update = Statement::new(self.dialect(), "UPDATE duly_right SET instance = ");
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

    /// Says that this node is there. Gives all that are.
    pub(super) async fn be_there(
        &self,
        now: Now,
        coming: Coming,
        serves: &BTreeSet<String>,
    ) -> Result<Vec<Member>, StoreError> {
        self.check_open()?;
        if let Some(clock) = self.time.clock() {
            let asked = clock.machine().mono();
            clock.hear(asked, read!(self, |session| self.server_time(&mut session))?);
        }
        let told = self.told(serves);
        let unconfirmed = self.lanes.unconfirmed();
        let signed_in = transact!(self, |session| self.sign_in(&mut session, now, coming, &told));
        self.writes.heartbeat(&signed_in);
        match signed_in? {
            Ok(SignedIn { there, found, life_end }) => {
                let wrote = self.presence.lock().life_end.replace(life_end);
                let is_lost = wrote.is_some_and(|wrote| found.is_none_or(|found| found < wrote));
                if is_lost {
                    // Either others took this node for gone, or a failover lost what it wrote last, and not only that.
                    tracing::warn!("heartbeat missing in the database; reloading lane numbers");
                    self.lanes.doubt_all();
                }
                self.confirm_lanes(if is_lost { self.lanes.unconfirmed() } else { unconfirmed }).await?;
                Ok(there)
            }
            Err(refused) => {
                if refused.kind == StoreErrorKind::Closed && !self.closed.swap(true, Ordering::Relaxed) {
                    tracing::error!("{refused}");
                }
                Err(refused)
            }
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
        coming: Coming,
        told: &str,
    ) -> Result<Result<SignedIn, StoreError>, Fault> {
        let (me, name) = (self.options.instance as i64, self.options.node.as_str());
        let tick = self.time.tick(now) as i64;
        // One at a time: two that come at the same moment would not see each other.
        let candidate = "SELECT value FROM duly_store WHERE name = 'generation' FOR UPDATE";
        session.rows(Statement::new(self.dialect(), candidate)).await?;
        let select =
            "SELECT instance, name, protocol, life_end, told FROM duly_node ORDER BY instance FOR UPDATE";
        let (mut there, mut gone, mut found) = (Vec::new(), Vec::new(), None);
        for row in session.rows(Statement::new(self.dialect(), select)).await? {
            let instance = row.int(0)?;
            let other = String::from_utf8_lossy(&row.bytes(1)?).into_owned();
            if instance == me {
                found = Some(row.int(3)?);
                continue;
            }
            // One that comes with the name of a node was started again, so the one before it has ended.
            if row.int(3)? <= tick || (other == name && coming == Coming::New) {
                gone.push(instance);
            } else if other == name {
                return Ok(Err(another(name)));
            } else if row.int(2)? != PROTOCOL && coming == Coming::New {
                return Ok(Err(of_another_version(&other)));
            } else {
                there.extend(read_member(instance as u64, other, &row.text(4)?, false));
            }
        }
        if !gone.is_empty() {
            let mut delete = Statement::new(self.dialect(), "DELETE FROM duly_node WHERE instance IN (");
            delete.bind_all(gone.iter().copied()).push(")");
            session.run(delete).await?;
            self.forget_calls(session, &gone).await?;
        }
        let life = i64::try_from(self.options.lease.as_micros()).unwrap_or(i64::MAX >> 12);
        let end = self.time.latest_tick(now) as i64 + life;
        let mut insert = Statement::new(
            self.dialect(),
            "INSERT INTO duly_node (instance, name, protocol, life_end, told) VALUES (",
        );
        insert.bind(me).push(", ").bind(name.as_bytes()).push(", ").bind(PROTOCOL).push(", ");
        insert.bind(end).push(", ").bind(told).push(")");
        insert.push_as(
            " ON DUPLICATE KEY UPDATE life_end = VALUES(life_end), told = VALUES(told)",
            " ON CONFLICT (instance) DO UPDATE SET life_end = EXCLUDED.life_end, told = EXCLUDED.told",
        );
        session.run(insert).await?;
        there.extend(read_member(me as u64, name.to_owned(), told, true));
        Ok(Ok(SignedIn { there, found, life_end: end }))
    }

    /// What this node tells of itself, in lines.
    fn told(&self, serves: &BTreeSet<String>) -> String {
        let owned = self.nodes.lock().owned();
        let skew = self.time.skew_us().unwrap_or_default();
        let mut lines = vec![env!("CARGO_PKG_VERSION").to_owned(), owned.to_string(), skew.to_string()];
        let (sinks, queues): (Vec<_>, Vec<_>) = serves.iter().cloned().partition(|lane| is_to_a_sink(lane));
        // Those to sinks must all be there: they are shared out by this.
        let room = LANES_MAX.max(sinks.len());
        lines.extend(sinks.into_iter().chain(queues).take(room));
        lines.join("\n")
    }

    pub(super) async fn all_nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        self.check_open()?;
        let select = || Statement::new(self.dialect(), "SELECT instance, name, told FROM duly_node");
        let mut nodes = Vec::new();
        for row in read!(self, |session| session.rows(select()))? {
            let (instance, name) = (row.int(0)?, String::from_utf8_lossy(&row.bytes(1)?).into_owned());
            let is_this = instance == self.options.instance as i64;
            let member = read_member(instance as u64, name, &row.text(2)?, is_this);
            nodes.extend(member.map(|member| member.status));
        }
        for lane in nodes.iter_mut().flat_map(|node| &mut node.lanes) {
            *lane = lane_of(lane.as_bytes()).map_or_else(String::new, |lane| lane.to_string());
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(nodes)
    }

    /// This node goes. What it did not say, others find out when its time is over.
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

fn another(name: &str) -> StoreError {
    let what = format!(
        "another node named {name:?} has come to this store, so this one stops: every node needs a name of its own"
    );
    StoreError::new(StoreErrorKind::Closed, what)
}

fn of_another_version(other: &str) -> StoreError {
    let what = format!(
        "the node {other:?} works on this store in another way than this version does; stop the nodes of one version before \
         those of another are started"
    );
    StoreError::new(StoreErrorKind::Unavailable, what)
}

/// Reads what [`SqlStore::told`] wrote. One that tells what is not understood here is of another version.
fn read_member(instance: u64, name: String, told: &str, this: bool) -> Option<Member> {
    let mut lines = told.split('\n');
    let mut status = NodeStatus::new(name, this, lines.next()?);
    status.shards = lines.next()?.parse().ok()?;
    status.clock_skew_us = lines.next()?.parse().ok()?;
    status.lanes = lines.map(Into::into).collect();
    Some(Member { instance, status })
}
