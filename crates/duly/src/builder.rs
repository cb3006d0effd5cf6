//! The builder.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use duly_core::{
    Clock, ErrorCode, InStoreDelivery, Invalid, Lane, Limits, RetryPolicy, Sink, SinkName, Store, Topic,
    schedule::{LaneSettings, Settings, SweepSettings},
};
#[cfg(feature = "embedded")]
use duly_stores::EmbeddedConfig;
#[cfg(feature = "redis_and_mysql")]
use duly_stores::RedisAndMysqlConfig;
#[cfg(feature = "redis")]
use duly_stores::RedisConfig;
use duly_stores::{NodeOptions, OpenStore, StoreConfig};
#[cfg(feature = "sql")]
use duly_stores::{SqlConfig, SqlServer};

use crate::{
    Duly, Error, HandlerOptions, Levels, SinkOptions, SystemClock, counters,
    engine::{Command, Driver, EngineHandles, Hints, Worker},
    events::EventBus,
    health::check_runtime,
    seconds,
    topic_guard::TopicGuard,
    trace::{Spans, Tracer},
};

/// Builds a [`Duly`]: store, sinks and options.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    store: Option<StoreChoice>,
    clock: Option<Arc<dyn Clock>>,
    sinks: Vec<(String, Arc<dyn Sink>, SinkOptions)>,
    in_store_deliveries: BTreeMap<String, Arc<dyn InStoreDelivery>>,
    pub(crate) levels: Levels,
    pub(crate) limits: Limits,
    pub(crate) retry: RetryPolicy,
    pub(crate) handlers: HandlerOptions,
    sweep: SweepSettings,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) deliver: bool,
    pub(crate) allow_volatile: bool,
    observation: Observation,
    seed: Option<u64>,
}

/// Who looks on.
#[derive(Default)]
struct Observation {
    /// Topics with metrics of their own.
    topics: Vec<String>,
    tracer: Option<Arc<dyn Tracer>>,
}

/// Where messages are stored.
enum StoreChoice {
    /// A store to open, as a node of this name.
    Config(StoreConfig, String),
    /// An open store.
    Store(Arc<dyn Store>),
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            store: None,
            clock: None,
            sinks: Vec::new(),
            in_store_deliveries: BTreeMap::new(),
            levels: Levels::default(),
            limits: Limits::default(),
            retry: RetryPolicy::default(),
            handlers: HandlerOptions::default(),
            sweep: SweepSettings::default(),
            lease: seconds(10),
            grace: seconds(20),
            deliver: true,
            allow_volatile: false,
            observation: Observation::default(),
            seed: None,
        }
    }
}

impl Builder {
    /// Lanes with metrics of their own, sinks first; the rest is summed up.
    pub const LANES_MEASURED_MAX: usize = counters::LANES_MAX;

    /// Stores messages in a local folder, in this process.
    #[cfg(feature = "embedded")]
    pub fn folder(self, folder: impl Into<std::path::PathBuf>) -> Self {
        self.config(StoreConfig::Embedded(EmbeddedConfig::new(folder)), "")
    }

    /// Stores messages in Redis 7.0 or newer at `url`: `redis://`, `rediss://`, `redis-cluster://a,b,c` or
    /// `redis-sentinel://a,b,c/name`. Any number of processes share it. `node` is the unique name of this process,
    /// which stays the same after a restart. All processes use the time of Redis.
    ///
    /// A Redis that may lose messages is refused, unless [`allow_volatile`](Self::allow_volatile) is set.
    #[cfg(feature = "redis")]
    pub fn redis(self, url: impl Into<String>, node: impl Into<String>) -> Self {
        self.config(StoreConfig::Redis(RedisConfig::new(url)), node)
    }

    /// Stores messages in MySQL 8 or MariaDB 10.6, or newer, at `url`: `mysql://user:password@host:3306/database`. The
    /// database must exist; its tables are created. Any number of processes share it. `node` is the unique name of this
    /// process, which stays the same after a restart. All processes use the time of the database.
    #[cfg(feature = "sql")]
    pub fn mysql(self, url: impl Into<String>, node: impl Into<String>) -> Self {
        self.config(StoreConfig::Sql(SqlConfig::new(SqlServer::Mysql, url)), node)
    }

    /// Stores messages in PostgreSQL 13 or newer at `url`: `postgres://user:password@host:5432/database`. Otherwise
    /// like [`mysql`](Self::mysql).
    #[cfg(feature = "sql")]
    pub fn postgres(self, url: impl Into<String>, node: impl Into<String>) -> Self {
        self.config(StoreConfig::Sql(SqlConfig::new(SqlServer::Postgres, url)), node)
    }

    /// Stores messages in MySQL, as [`mysql`](Self::mysql) does, with an index of the next hour in the Redis at
    /// `redis`, which may be unreachable or lose it.
    #[cfg(feature = "redis_and_mysql")]
    pub fn redis_and_mysql(
        self,
        redis: impl Into<String>,
        mysql: impl Into<String>,
        node: impl Into<String>,
    ) -> Self {
        self.config(StoreConfig::RedisAndMysql(RedisAndMysqlConfig::new(redis, mysql)), node)
    }

    /// Allows a server that may lose messages: a Redis without append-only file or with eviction, a database that does
    /// not sync its commits. Default false.
    pub fn allow_volatile(mut self, allow: bool) -> Self {
        self.allow_volatile = allow;
        self
    }

    /// Stores messages in memory, for tests: they are lost with the process.
    pub fn memory(self) -> Self {
        self.config(StoreConfig::Memory, "")
    }

    fn config(mut self, config: StoreConfig, node: impl Into<String>) -> Self {
        self.store = Some(StoreChoice::Config(config, node.into()));
        self
    }

    /// Uses this store.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(StoreChoice::Store(store));
        self
    }

    /// Uses this clock instead of the system's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Adds a sink.
    pub fn sink(mut self, name: impl Into<String>, sink: Arc<dyn Sink>, options: SinkOptions) -> Self {
        self.sinks.push((name.into(), sink, options));
        self
    }

    /// Lets the store deliver messages of the sink `name` by itself where it can; the sink delivers the rest.
    pub fn in_store_delivery(mut self, name: impl Into<String>, in_store: Arc<dyn InStoreDelivery>) -> Self {
        self.in_store_deliveries.insert(name.into(), in_store);
        self
    }

    /// Sets the named delays.
    pub fn levels(mut self, levels: Levels) -> Self {
        self.levels = levels;
        self
    }

    /// Sets the limits of messages.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the default retry policy of sinks.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the default options of handlers.
    pub fn handlers(mut self, handlers: HandlerOptions) -> Self {
        self.handlers = handlers;
        self
    }

    /// Sets the intervals of the sweep.
    pub fn sweep(mut self, sweep: SweepSettings) -> Self {
        self.sweep = sweep;
        self
    }

    /// Sets the lease of claims: how soon another node takes over from a dead one.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long running handlers and sinks may take at a shutdown.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets whether this process delivers. If not, messages to its sinks are accepted and delivered by other processes,
    /// and handlers are refused.
    pub fn deliver(mut self, deliver: bool) -> Self {
        self.deliver = deliver;
        self
    }

    /// Adds topics with [metrics](Duly::metrics) of their own, over all sinks.
    pub fn watch_topics(mut self, topics: impl IntoIterator<Item: Into<String>>) -> Self {
        self.observation.topics.extend(topics.into_iter().map(Into::into));
        self
    }

    /// Connects the spans of this Duly with the trace contexts of its messages.
    pub fn tracer(mut self, tracer: impl Tracer) -> Self {
        self.observation.tracer = Some(Arc::new(tracer));
        self
    }

    /// Sets the seed of jitter and generated ids, for repeatable runs. Random by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Validates the options, opens the store and starts delivering. Must be called in a Tokio runtime.
    /// Cancel safety: dropped midway, nothing is delivered.
    pub async fn start(mut self) -> Result<Duly, Error> {
        check_runtime()?;
        self.check()?;
        let sinks = self.checked_sinks()?;
        let watched_topics: Vec<Topic> =
            self.observation.topics.iter().map(|topic| Topic::parse(topic)).collect::<Result<_, _>>()?;
        let clock = match self.clock.take() {
            Some(clock) => clock,
            None => Arc::new(SystemClock::new().map_err(|e| Error::NoThread(e.to_string()))?),
        };
        let (store, clock) = match self.store.take() {
            Some(StoreChoice::Store(store)) => (store, clock),
            Some(StoreChoice::Config(config, node)) => {
                let OpenStore { store, clock, .. } = self.open(config, node, clock).await?;
                (store, clock)
            }
            None => {
                let detail = "nowhere to keep messages: call folder(...), redis(...), mysql(...), postgres(...), memory() or store(...)";
                return Err(Invalid::new(ErrorCode::NoStore, "store", detail).into());
            }
        };
        let (inputs, inbox) = tokio::sync::mpsc::unbounded_channel();
        let (hints, events) = (Arc::new(Hints::default()), Arc::new(EventBus::watching(watched_topics)));
        let (liveness, health_cache) = (Arc::default(), Arc::default());
        let spans = Spans::new(self.observation.tracer.take());
        let parts = EngineHandles { store, clock, hints, events, spans, liveness, health_cache, inputs };
        let seed = self.seed.unwrap_or_else(random);
        let paused = parts.store.lanes(parts.clock.now()).await?;
        let settings = Settings { sweep: self.sweep.clone(), seed };
        let driver = tokio::spawn(Driver::new(parts.clone(), inbox, settings).run()).abort_handle();
        for (name, (sink, options)) in sinks.iter().filter(|_| self.deliver) {
            let lane = Lane::Sink(name.clone());
            let paused = paused.iter().any(|status| status.paused && status.lane == lane);
            let mut settings = options.lane(self.lease, &self.retry);
            let in_store = self.in_store_deliveries.remove(name.as_str());
            settings.in_store_max = if in_store.is_some() { LaneSettings::IN_STORE_MAX } else { 0 };
            let worker = Worker::Sink(sink.clone(), in_store);
            let _ = parts.inputs.send(Command::AddLane { lane, settings, worker, paused }.into());
        }
        let sinks = sinks.into_iter().map(|(name, (sink, _))| (name, sink)).collect();
        Ok(Duly::new(parts, driver, sinks, self, seed))
    }

    /// Opens the store that this builder names.
    async fn open(
        &self,
        config: StoreConfig,
        name: String,
        machine: Arc<dyn Clock>,
    ) -> Result<OpenStore, Error> {
        config.check()?;
        let node = NodeOptions {
            name,
            instance: random(),
            lease: self.lease,
            retention: config.retention(),
            limits: self.limits.clone(),
        };
        Ok(config.allow_volatile(self.allow_volatile).open(node, machine).await?)
    }

    /// Refuses options that would stop delivery or contradict each other.
    fn check(&self) -> Result<(), Invalid> {
        self.sweep.check()?;
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
            let sink = TopicGuard::wrap(sink, &options.topics);
            if sinks.insert(name, (sink, options)).is_some() {
                return Err(Invalid::new(ErrorCode::DuplicateSink, path, "two sinks have this name"));
            }
        }
        let unknown = |name: &&String| !sinks.keys().any(|known: &SinkName| known.as_str() == name.as_str());
        if let Some(name) = self.in_store_deliveries.keys().find(unknown) {
            let detail = "in-store delivery is set for a sink of this name, and there is no such sink: what the store does not deliver would never be sent";
            return Err(Invalid::new(ErrorCode::UnknownSink, format!("sinks.{name}"), detail));
        }
        Ok(sinks)
    }
}

/// A number from the system: the keys of its hashers are random, which needs no other dependency.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}
