//! Opening a store: checks the server and the store, and ends the claims of processes that are gone.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use duly_core::{
    Clock, Now,
    store::{StoreError, StoreErrorKind},
};

use redis::RedisError;

use super::{
    Generation, Options, RedisStore,
    call::{ITEMS_MAX, number},
    connection::{Link, connect},
    fault::{LoggedFaults, garbled, sorted},
    health::LastSweep,
    inspect::findings,
    keys::Keys,
    outcomes::Outcomes,
    paused::Paused,
    replicas::Replicas,
    scripts,
    shard_faults::{FailureDomain, ShardFaults},
    unconfirmed::UnconfirmedCalls,
};
use crate::shared::{
    ServerClock,
    hints::HintListener,
    membership::{CLOCK_QUESTIONS, JoinKind, Membership},
    room::Room,
    shard_leases::Nodes,
    time::StoreTime,
};

/// The layout of the data. Another number is another Duly's.
const FORMAT: &str = "1";
/// Max difference between the clocks of two nodes.
const CLOCKS_APART_US: u64 = 1_000_000;

/// A claim that was found.
struct FoundClaim {
    shard: u16,
    id: Vec<u8>,
    token: u64,
    end: u64,
    span: u64,
    /// The process that held it; `None` for a client.
    process: Option<u64>,
    /// It had been lost before.
    suspect: bool,
}

impl RedisStore {
    /// Opens the store in the Redis at `url`, makes it if there is none, and becomes one of its nodes.
    ///
    /// Time goes by the clock that is given here, and that is that of Redis: give it to whoever uses the store. `machine`
    /// is this machine's.
    pub async fn join(
        url: &str,
        options: Options,
        machine: Arc<dyn Clock>,
    ) -> Result<(Self, ServerClock), StoreError> {
        let mut link = connect(url).await?;
        let clock = ServerClock::new(machine);
        for _ in 0..CLOCK_QUESTIONS {
            let sent_at = clock.machine().mono();
            let (seconds, micros): (u64, u64) =
                redis::cmd("TIME").query_async(&mut link).await.map_err(|error| sorted(&error))?;
            clock.record_reply(sent_at, seconds * 1_000_000 + micros);
        }
        let store = Self::on(link, options, Some(clock.clone()), clock.now()).await?;
        Ok((store, clock))
    }

    /// The same, when the caller's time is its own and the same for all who share the store, as in tests.
    pub async fn open(url: &str, options: Options, now: Now) -> Result<Self, StoreError> {
        Self::on(connect(url).await?, options, None, now).await
    }

    /// Claims of [`Holder::Process`](duly_core::store::Holder::Process) whose process is not there any more are lost now.
    async fn on(
        mut link: Link,
        options: Options,
        clock: Option<ServerClock>,
        now: Now,
    ) -> Result<Self, StoreError> {
        let refused = |what: String| StoreError::new(StoreErrorKind::Unavailable, what);
        if let Some(fault) = options.fault() {
            return Err(refused(fault));
        }
        if options.wait_replicas > 0 && matches!(link, Link::Cluster(..)) {
            return Err(refused("wait_replicas does not go with a Redis Cluster: leave it out".into()));
        }
        check_server(&mut link, &options).await?;
        let keys = Keys::new(&options.prefix, options.shards);
        let generation = generation(&mut link, &keys, &options).await?;
        let faults = ShardFaults::new(matches!(link, Link::Cluster(..)));
        let store = Self {
            link,
            keys,
            generation: Generation { name: generation, logged: LoggedFaults::default() },
            time: StoreTime::begin(clock, now),
            nodes: Nodes::default(),
            room: Room::default(),
            unconfirmed: UnconfirmedCalls::default(),
            outcomes: Outcomes::default(),
            hints: HintListener::default(),
            paused: Paused::default(),
            faults,
            replicas: Replicas::default(),
            last_sweep: LastSweep::default(),
            membership: Membership::default(),
            options,
        };
        store.begin_paused().await?;
        let alive = store.join_as_new(now).await?;
        store.recover(now, alive.as_ref()).await?;
        let totals = store.reachable_totals().await?;
        store.room.update(store.room.ask(), totals.pending + totals.in_flight);
        Ok(store)
    }

    /// Becomes a node. Returns the instances of all; `None` if the key of the nodes is damaged: a sweep joins once it is repaired.
    async fn join_as_new(&self, now: Now) -> Result<Option<HashSet<u64>>, StoreError> {
        match self.heartbeat(now, JoinKind::New, &BTreeSet::new()).await {
            Ok(alive) => {
                self.membership.joined();
                Ok(Some(alive.into_iter().map(|member| member.instance).collect()))
            }
            Err(error) => self.faults.record(FailureDomain::Nodes, error).map(|()| None),
        }
    }

    /// The claims of all shards that answer.
    async fn all_claims(&self) -> Result<Vec<FoundClaim>, StoreError> {
        let mut reply = Vec::with_capacity(usize::from(self.keys.shards()));
        for shard in 0..self.keys.shards() {
            reply.push((shard, self.read_all("HSCAN", self.keys.one(shard, "claim")).await));
        }
        let mut found = Vec::new();
        for (shard, claims) in self.faults.answered(reply, |shard| *shard)? {
            for (id, claim) in claims {
                match read_claim(shard, &id, &claim) {
                    Some(claim) => found.push(claim),
                    // Left to the end of its lease.
                    None => {
                        tracing::error!(id = %String::from_utf8_lossy(&id), shard, "stored claim unreadable");
                    }
                }
            }
        }
        Ok(found)
    }

    /// Ends what processes held that are not there any more, and puts the leases of clients on this process's clock. Without knowing
    /// who is there, what processes hold is lost with its leases. A shard that is damaged is left to its leases, too.
    async fn recover(&self, now: Now, alive: Option<&HashSet<u64>>) -> Result<(), StoreError> {
        let mut found = self.all_claims().await?;
        // If a suspect was among what a process held, the suspect is the cause. It goes last: should this process die
        // here, the next one must still see it.
        let is_over = |process: &u64| alive.is_some_and(|alive| !alive.contains(process));
        let ended = |claim: &FoundClaim| claim.process.filter(is_over);
        let suspect_held: HashSet<u64> =
            found.iter().filter(|claim| claim.suspect).filter_map(ended).collect();
        found.sort_by_key(|claim| claim.suspect);
        let time = self.time.latest_tick(now);
        let mut parts: HashMap<(bool, u16), Vec<(FoundClaim, String)>> = HashMap::new();
        for claim in found {
            let what = match ended(&claim) {
                Some(process) if claim.suspect || !suspect_held.contains(&process) => "l".to_owned(),
                Some(_) => "d".to_owned(),
                // Even if wall time has stepped meanwhile, no lease lasts longer than it was given for.
                // A span that something else wrote may be any number.
                None if claim.end > time.saturating_add(claim.span).saturating_add(CLOCKS_APART_US) => {
                    format!("e{}", time + claim.span)
                }
                None => continue,
            };
            parts.entry((claim.suspect, claim.shard)).or_default().push((claim, what));
        }
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by_key(|(order, _)| *order);
        for ((_, shard), claims) in parts {
            for part in claims.chunks(ITEMS_MAX) {
                let mut cmd = self.call(&scripts::RECOVER, shard, now);
                for (claim, what) in part {
                    cmd.arg(claim.id.as_slice()).arg(claim.token).arg(what);
                }
                match self.run(&scripts::RECOVER, &cmd).await {
                    Ok(reply) => reply.iter().skip(1).for_each(|id| self.faults.damaged.record(shard, id)),
                    Err(error) => self.faults.record(shard, error)?,
                }
            }
        }
        Ok(())
    }
}

/// An error of one key, which keeps a node from starting: with the key's name, and how to repair it.
fn of_key(error: &RedisError, key: &str, repair: &str) -> StoreError {
    let fault = sorted(error);
    if fault.kind == StoreErrorKind::Damaged {
        return StoreError::new(fault.kind, format!("the key {key} is damaged: {}; {repair}", fault.what));
    }
    fault
}

/// As `prelude.lua` packs it: token 8, end 8, span 8, holder 1, lost 1, instance 8, and more.
fn read_claim(shard: u16, id: &[u8], claim: &[u8]) -> Option<FoundClaim> {
    let number = |at: usize| Some(u64::from_be_bytes(claim.get(at..at + 8)?.try_into().ok()?));
    let (holder, suspect, instance) = (*claim.get(24)?, *claim.get(25)? != 0, number(26)?);
    let process = (holder == 0).then_some(instance);
    let id = id.to_vec();
    Some(FoundClaim { shard, id, token: number(0)?, end: number(8)?, span: number(16)?, process, suspect })
}

async fn check_server(link: &mut Link, options: &Options) -> Result<(), StoreError> {
    let (_, found) = findings(link).await?;
    for finding in found {
        if finding.may_be_allowed && options.allow_volatile {
            tracing::warn!(finding = finding.what, "server not durable; allowed by allow_volatile");
            continue;
        }
        let allow = if finding.may_be_allowed { "; or allow it by setting allow_volatile" } else { "" };
        let what = format!("{}; {}{allow}", finding.what, finding.remedy);
        return Err(StoreError::new(StoreErrorKind::Unavailable, what));
    }
    Ok(())
}

/// The generation of the store: made with it, kept beside it and in every shard.
async fn generation(link: &mut Link, keys: &Keys, options: &Options) -> Result<String, StoreError> {
    let refused = |what: String| StoreError::new(StoreErrorKind::Unavailable, what);
    let fault = |error| sorted(&error);
    let made = format!("{:016x}", options.instance);
    let (known, generation, format, shards) = redis::pipe()
        .atomic()
        .cmd("HEXISTS")
        .arg(&keys.store)
        .arg("whole")
        .cmd("HSETNX")
        .arg(&keys.store)
        .arg("generation")
        .arg(made)
        .ignore()
        .cmd("HSETNX")
        .arg(&keys.store)
        .arg("format")
        .arg(FORMAT)
        .ignore()
        .cmd("HSETNX")
        .arg(&keys.store)
        .arg("shards")
        .arg(options.shards)
        .ignore()
        .cmd("HGET")
        .arg(&keys.store)
        .arg("generation")
        .cmd("HGET")
        .arg(&keys.store)
        .arg("format")
        .cmd("HGET")
        .arg(&keys.store)
        .arg("shards")
        .query_async::<(bool, String, String, Vec<u8>)>(link)
        .await
        .map_err(|error| {
            // It has the generation and the number of shards, which nobody can guess.
            of_key(&error, &keys.store, "restore it, or all of the store, from a backup")
        })?;
    if format != FORMAT {
        return Err(refused(format!(
            "the store {:?} in Redis has format {format} and this Duly knows {FORMAT}; use the Duly that made it",
            options.prefix
        )));
    }
    let shards = number(&shards).ok_or_else(|| garbled("the number of shards"))?;
    if shards != u64::from(options.shards) {
        return Err(refused(format!(
            "the store {:?} in Redis was made with {shards} shards and this one was asked for with {}; set shards to {shards}",
            options.prefix, options.shards
        )));
    }
    for shard in 0..options.shards {
        let key = keys.one(shard, "meta");
        let (new, found) = redis::pipe()
            .atomic()
            .cmd("HSETNX")
            .arg(key)
            .arg("generation")
            .arg(&generation)
            .cmd("HGET")
            .arg(key)
            .arg("generation")
            .query_async::<(bool, String)>(link)
            .await
            .map_err(|error| {
                let repair = format!(
                    "DEL {key} and start again: the messages of shard {shard} are in other keys and stay"
                );
                of_key(&error, key, &repair)
            })?;
        if found != generation {
            return Err(garbled(&format!("shard {shard} of the store {:?}", options.prefix)));
        }
        let mut holds_messages = redis::cmd("EXISTS");
        holds_messages.arg(keys.one(shard, "msg"));
        if new && known && holds_messages.query_async::<bool>(link).await.map_err(fault)? {
            tracing::warn!(prefix = options.prefix, shard, key, "shard key missing in Redis; recreated");
        } else if new && known {
            tracing::error!(
                prefix = options.prefix,
                shard,
                "shard missing in Redis; its messages are lost and it starts empty"
            );
        }
    }
    redis::cmd("HSET").arg(&keys.store).arg("whole").arg(1).query_async::<()>(link).await.map_err(fault)?;
    Ok(generation)
}
