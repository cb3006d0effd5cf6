//! Putting a Duly together.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use duly_core::{
    Clock, ErrorCode, InStoreDelivery, Invalid, Lane, Limits, RetryPolicy, Sink, SinkName, Store, Topic,
    schedule::{LaneSettings, Settings, SweepSettings},
};
use duly_stores::{MemoryStore, memory, sql};

use crate::{
    Duly, Error, HandlerOptions, Levels, SinkOptions, SystemClock,
    engine::{Command, Driver, Hints, Parts, Worker},
    events::EventBus,
    open, seconds, tally,
    topic_guard::TopicGuard,
};

/// Puts a [`Duly`] together: where messages wait, where they go, and how.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    place: Option<Place>,
    clock: Option<Arc<dyn Clock>>,
    sinks: Vec<(String, Arc<dyn Sink>, SinkOptions)>,
    movers: BTreeMap<String, Arc<dyn InStoreDelivery>>,
    pub(crate) levels: Levels,
    pub(crate) limits: Limits,
    pub(crate) retry: RetryPolicy,
    pub(crate) handlers: HandlerOptions,
    pace: SweepSettings,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) deliver: bool,
    pub(crate) allow_volatile: bool,
    watched: Vec<String>,
    seed: Option<u64>,
}

enum Place {
    Folder(PathBuf),
    Redis { url: String, node: String },
    Sql { server: sql::Server, url: String, node: String },
    Pair { redis: String, mysql: String, node: String },
    Memory,
    Store(Arc<dyn Store>),
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            place: None,
            clock: None,
            sinks: Vec::new(),
            movers: BTreeMap::new(),
            levels: Levels::default(),
            limits: Limits::default(),
            retry: RetryPolicy::default(),
            handlers: HandlerOptions::default(),
            pace: SweepSettings::default(),
            lease: seconds(10),
            grace: seconds(20),
            deliver: true,
            allow_volatile: false,
            watched: Vec::new(),
            seed: None,
        }
    }
}

impl Builder {
    /// So many lanes are measured by name, sinks first; the rest are summed up.
    pub const LANES_MEASURED_MAX: usize = tally::LANES_MAX;

    /// Messages wait in a folder of this machine, in this process.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.place = Some(Place::Folder(folder.into()));
        self
    }

    /// Messages wait in the Redis 7.0 or newer at `url`: `redis://`, `rediss://`, `redis-cluster://a,b,c` or
    /// `redis-sentinel://a,b,c/name`. Any number of processes share it; `node` is the name of this one, which no other may have and
    /// which stays the same when it is started again. Time is that of Redis then, for all of them.
    ///
    /// A Redis that may lose messages is refused, unless [`allow_volatile`](Self::allow_volatile) says otherwise.
    pub fn redis(mut self, url: impl Into<String>, node: impl Into<String>) -> Self {
        self.place = Some(Place::Redis { url: url.into(), node: node.into() });
        self
    }

    /// Messages wait in the MySQL 8 or MariaDB 10.6, or newer, at `url`: `mysql://user:password@host:3306/database`. The database must be
    /// there; its tables are made. Any number of processes share it; `node` is the name of this one, which no other may have and which
    /// stays the same when it is started again. Time is that of the database then, for all of them.
    pub fn mysql(mut self, url: impl Into<String>, node: impl Into<String>) -> Self {
        self.place = Some(Place::Sql { server: sql::Server::Mysql, url: url.into(), node: node.into() });
        self
    }

    /// Messages wait in the PostgreSQL 13 or newer at `url`: `postgres://user:password@host:5432/database`. Otherwise as
    /// [`mysql`](Self::mysql).
    pub fn postgres(mut self, url: impl Into<String>, node: impl Into<String>) -> Self {
        self.place = Some(Place::Sql { server: sql::Server::Postgres, url: url.into(), node: node.into() });
        self
    }

    /// Messages wait in MySQL, as with [`mysql`](Self::mysql), and are found by an index of the next hour in the Redis at `redis`, which
    /// may be away or lose it.
    pub fn redis_and_mysql(
        mut self,
        redis: impl Into<String>,
        mysql: impl Into<String>,
        node: impl Into<String>,
    ) -> Self {
        self.place = Some(Place::Pair { redis: redis.into(), mysql: mysql.into(), node: node.into() });
        self
    }

    /// Takes a server that may lose messages: a Redis without its append-only file, or one that evicts; a database that does not sync its
    /// commits. Off.
    pub fn allow_volatile(mut self, allow: bool) -> Self {
        self.allow_volatile = allow;
        self
    }

    /// Messages wait in this process's memory, and are lost with it: for tests.
    pub fn memory(mut self) -> Self {
        self.place = Some(Place::Memory);
        self
    }

    /// Messages wait in this store.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.place = Some(Place::Store(store));
        self
    }

    /// Time comes from this clock; the machine's, unless told otherwise.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Messages to `name` go to this sink.
    pub fn sink(mut self, name: impl Into<String>, sink: Arc<dyn Sink>, options: SinkOptions) -> Self {
        self.sinks.push((name.into(), sink, options));
        self
    }

    /// The store takes messages to the sink `name` by itself, where it can; the sink takes the rest.
    pub fn in_store_delivery(mut self, name: impl Into<String>, mover: Arc<dyn InStoreDelivery>) -> Self {
        self.movers.insert(name.into(), mover);
        self
    }

    /// The named delays.
    pub fn levels(mut self, levels: Levels) -> Self {
        self.levels = levels;
        self
    }

    /// What is refused as too large or too far away.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The retries of every sink that names none of its own.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// How handlers are served unless they say otherwise.
    pub fn handlers(mut self, handlers: HandlerOptions) -> Self {
        self.handlers = handlers;
        self
    }

    /// How often the sweep looks that backs up wake-ups.
    pub fn scan(mut self, pace: SweepSettings) -> Self {
        self.pace = pace;
        self
    }

    /// How long a claim lasts without renewal: how soon another node takes over what this one held.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long handlers and sinks may finish at a clean stop.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Whether this process delivers. If not, its sinks are known by name, so that messages to them are accepted, and
    /// others deliver them; handlers are refused.
    pub fn deliver(mut self, deliver: bool) -> Self {
        self.deliver = deliver;
        self
    }

    /// Topics that are [measured](Duly::measures) by name, whichever sinks they go to.
    pub fn watch_topics(mut self, topics: impl IntoIterator<Item: Into<String>>) -> Self {
        self.watched.extend(topics.into_iter().map(Into::into));
        self
    }

    /// Where jitter and made ids start, for runs that can be repeated. Drawn anew unless set.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks the settings, opens the store and starts delivering. Must be called in a Tokio runtime. Cancel safety: dropped
    /// midway, nothing is delivered.
    pub async fn start(mut self) -> Result<Duly, Error> {
        tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        self.check()?;
        let sinks = self.checked_sinks()?;
        let watched: Vec<Topic> =
            self.watched.iter().map(|topic| Topic::parse(topic)).collect::<Result<_, _>>()?;
        let clock = match self.clock.take() {
            Some(clock) => clock,
            None => Arc::new(SystemClock::new().map_err(|e| Error::NoThread(e.to_string()))?),
        };
        let (store, clock) = match self.place.take() {
            Some(Place::Store(store)) => (store, clock),
            Some(Place::Memory) => {
                let options =
                    memory::Options { pending_max: self.limits.pending_max, ..memory::Options::default() };
                (Arc::new(MemoryStore::with(options)) as Arc<dyn Store>, clock)
            }
            Some(Place::Folder(folder)) => (open::embedded(&folder, &self.limits, &*clock).await?, clock),
            Some(Place::Redis { url, node }) => open::redis(&url, node, &self, clock).await?,
            Some(Place::Sql { server, url, node }) => open::sql(server, &url, node, &self, clock).await?,
            Some(Place::Pair { redis, mysql, node }) => {
                open::pair(&redis, &mysql, node, &self, clock).await?
            }
            None => {
                let detail = "nowhere to keep messages: call folder(...), redis(...), mysql(...), postgres(...), memory() or store(...)";
                return Err(Invalid::new(ErrorCode::NoStore, "store", detail).into());
            }
        };
        let (inputs, inbox) = tokio::sync::mpsc::unbounded_channel();
        let (hints, events) = (Arc::new(Hints::default()), Arc::new(EventBus::watching(watched)));
        let (liveness, checks) = (Arc::default(), Arc::default());
        let parts = Parts { store, clock, hints, events, liveness, checks, inputs };
        // The hasher's keys come from the system: randomness without another dependency.
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        let paused = parts.store.lanes(parts.clock.now()).await?;
        let settings = Settings { pace: self.pace.clone(), seed };
        let driver = tokio::spawn(Driver::new(parts.clone(), inbox, settings).run()).abort_handle();
        for (name, (sink, options)) in sinks.iter().filter(|_| self.deliver) {
            let lane = Lane::Sink(name.clone());
            let paused = paused.iter().any(|status| status.paused && status.lane == lane);
            let mut settings = options.lane(self.lease, &self.retry);
            let mover = self.movers.remove(name.as_str());
            settings.movable = if mover.is_some() { LaneSettings::MOVABLE_MAX } else { 0 };
            let worker = Worker::Sink(sink.clone(), mover);
            let _ = parts.inputs.send(Command::AddLane { lane, settings, worker, paused }.into());
        }
        let sinks = sinks.into_iter().map(|(name, (sink, _))| (name, sink)).collect();
        Ok(Duly::new(parts, driver, sinks, self, seed))
    }

    /// Refuses what would stop delivery or contradicts itself; numbers of nothing mean one.
    fn check(&self) -> Result<(), Invalid> {
        self.pace.check()?;
        let leases = LaneSettings::LEASE_MIN..=LaneSettings::LEASE_MAX;
        if !leases.contains(&self.lease) {
            let detail = format!("it is {:?}, and must be within {leases:?}", self.lease);
            return Err(Invalid::new(ErrorCode::BadLease, "lease", detail));
        }
        self.retry.check("retry")?;
        self.handlers.check()?;
        for (path, limit) in
            [("limits.batch", self.limits.batch_max as u64), ("limits.pending", self.limits.pending_max)]
        {
            if limit == 0 {
                return Err(Invalid::new(ErrorCode::BadLimit, path, "it is 0: no message could be accepted"));
            }
        }
        Ok(())
    }

    #[expect(clippy::type_complexity, reason = "used once, right above")]
    fn checked_sinks(&mut self) -> Result<BTreeMap<SinkName, (Arc<dyn Sink>, SinkOptions)>, Invalid> {
        let mut sinks = BTreeMap::new();
        for (name, sink, options) in std::mem::take(&mut self.sinks) {
            let path = format!("sinks.{name}");
            let name = SinkName::parse(&name).map_err(|bad| Invalid::new(bad.code, &path, bad.detail))?;
            if name.is_queue() {
                let detail = "this name is the built-in queue's; choose another";
                return Err(Invalid::new(ErrorCode::ReservedSink, path, detail));
            }
            if let Some(retry) = &options.retry {
                retry.check(&format!("{path}.retry"))?;
            }
            if options.timeout.is_zero() {
                let detail = "it is 0: every call would be given up as it begins";
                return Err(Invalid::new(ErrorCode::BadTimeout, format!("{path}.timeout"), detail));
            }
            if options.timeout >= self.lease {
                let (timeout, lease) = (options.timeout, self.lease);
                let detail = format!("the timeout, {timeout:?}, must be shorter than the lease, {lease:?}");
                return Err(Invalid::new(ErrorCode::BadTimeout, format!("{path}.timeout"), detail));
            }
            options.check(&path)?;
            let sink = TopicGuard::around(sink, &options.topics);
            if sinks.insert(name, (sink, options)).is_some() {
                return Err(Invalid::new(ErrorCode::SinkTwice, path, "two sinks have this name"));
            }
        }
        let unknown = |name: &&String| !sinks.keys().any(|known: &SinkName| known.as_str() == name.as_str());
        if let Some(name) = self.movers.keys().find(unknown) {
            let detail = "a mover was given and no sink of this name: what is not moved would stay for ever";
            return Err(Invalid::new(ErrorCode::UnknownSink, format!("sinks.{name}"), detail));
        }
        Ok(sinks)
    }
}
