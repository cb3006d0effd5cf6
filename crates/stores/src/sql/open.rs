//! Opening a store.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use duly_core::{
    Clock, Now,
    store::{StoreError, StoreErrorKind},
};
use sqlx::{AssertSqlSafe, Connection, Executor, pool::PoolOptions, postgres::PgPool};

use super::{
    Database, Options, SqlStore, address::Address, call::Calls, connection::Link, count::Slots, hints::Hints,
    inspect, lanes::Lanes, nodes::Presence, redis_index::PendingIndexEntries, schema,
    unconfirmed::UnconfirmedCalls, writes::Writes,
};
use crate::shared::{
    ServerClock,
    membership::{CLOCK_QUESTIONS, JoinKind, Membership},
    room::Room,
    shard_leases::Nodes,
    time::StoreTime,
};

/// A start is tried again for so long where others hold what it needs: nodes that start together on a slow server.
pub(super) const START_WITHIN: Duration = Duration::from_secs(60);
/// How long a connection may take to come free.
const ACQUIRE_WITHIN: Duration = Duration::from_secs(8);
/// A connection that was idle for longer is tried before it is used.
const IDLE_UNTRIED: Duration = Duration::from_secs(2);

impl SqlStore {
    /// Opens the store in the database at `url`, `mysql://…` or `postgres://…`, makes its tables if there are none, and becomes one of
    /// its nodes.
    ///
    /// Time goes by the clock that is given here, and that is that of the database: give it to whoever uses the store. `machine`
    /// is this machine's.
    pub async fn join(
        url: &str,
        options: Options,
        machine: Arc<dyn Clock>,
    ) -> Result<(Self, ServerClock), StoreError> {
        Self::join_with(url, options, machine, false).await
    }

    /// The same, with an index in Redis beside it or not.
    pub(crate) async fn join_with(
        url: &str,
        options: Options,
        machine: Arc<dyn Clock>,
        has_redis_index: bool,
    ) -> Result<(Self, ServerClock), StoreError> {
        let clock = ServerClock::new(machine);
        let store = Self::connect(url, options, Some(clock.clone()), clock.now(), has_redis_index).await?;
        for _ in 0..CLOCK_QUESTIONS {
            let sent_at = clock.machine().mono();
            clock.record_reply(
                sent_at,
                store.read(|borrowed| Box::pin(store.server_time(borrowed.session))).await?,
            );
        }
        store.begin(clock.now()).await?;
        Ok((store, clock))
    }

    /// The same, when the caller's time is its own and the same for all who share the store, as in tests.
    pub async fn open(url: &str, options: Options, now: Now) -> Result<Self, StoreError> {
        Self::open_with(url, options, now, false).await
    }

    pub(crate) async fn open_with(
        url: &str,
        options: Options,
        now: Now,
        has_redis_index: bool,
    ) -> Result<Self, StoreError> {
        let store = Self::connect(url, options, None, now, has_redis_index).await?;
        store.begin(now).await?;
        Ok(store)
    }

    async fn connect(
        url: &str,
        options: Options,
        clock: Option<ServerClock>,
        now: Now,
        has_redis_index: bool,
    ) -> Result<Self, StoreError> {
        if let Some(fault) = options.fault() {
            return Err(StoreError::new(StoreErrorKind::Unavailable, fault));
        }
        let address =
            Address::parse(url).map_err(|what| StoreError::new(StoreErrorKind::Unavailable, what))?;
        let safety = inspect::check(&address, &options).await?;
        let (link, listening) = connect(address, options.connections, options.idle_max);
        let generation = schema::prepare(&link, &options, has_redis_index).await?;
        Ok(Self {
            link,
            database: Database { safety, generation },
            redis_index: PendingIndexEntries::new(has_redis_index),
            time: StoreTime::begin(clock, now),
            nodes: Nodes::default(),
            presence: Presence::default(),
            lanes: Lanes::default(),
            room: Room::default(),
            unconfirmed: UnconfirmedCalls::default(),
            hints: Hints::new(listening),
            slots: Slots::new(options.instance),
            calls: Calls::new(options.instance),
            writes: Writes::default(),
            membership: Membership::default(),
            options,
        })
    }

    /// Becomes a node. Claims of [`Holder::Process`](duly_core::store::Holder::Process) whose process is not there any more are lost
    /// now.
    async fn begin(&self, now: Now) -> Result<(), StoreError> {
        let mut last = None;
        let begun = async {
            loop {
                // A time from before the wait would make the first heartbeat end early.
                let now = self.time.clock().map_or(now, |clock| clock.now());
                match self.begin_once(now).await {
                    // Others hold the rows, or the server is slow. To do it again is to do it once.
                    Err(error) if error.kind == StoreErrorKind::Unanswered => {
                        tracing::warn!(%error, "start delayed; retried");
                        last = Some(error);
                    }
                    begun => return begun,
                }
            }
        };
        let begun = tokio::time::timeout(START_WITHIN, begun).await;
        match begun {
            Ok(begun) => begun,
            Err(_) => Err(last.unwrap_or_else(|| super::fault::Fault::late(START_WITHIN).into())),
        }
    }

    async fn begin_once(&self, now: Now) -> Result<(), StoreError> {
        let alive = self.heartbeat(now, JoinKind::New, &BTreeSet::new()).await?;
        self.presence.update(&alive);
        let alive: HashSet<_> = alive.into_iter().map(|member| member.instance as i64).collect();
        self.recover(now, &alive).await?;
        let sent_at = self.room.ask();
        let totals = self.all_totals().await?;
        self.room.update(sent_at, totals.pending + totals.in_flight);
        Ok(())
    }
}

/// Connections to the database, and one more to listen with where it can notify. The database ends a session that is idle for
/// `idle_max`: a client whose machine was lost never closes its connection, and the locks of its transaction would hold up every
/// other node.
pub(super) fn connect(address: Address, connections: u32, idle_max: Duration) -> (Link, Option<PgPool>) {
    match address {
        Address::Mysql(to) => {
            let settings = mysql_settings(idle_max);
            // An idle connection is closed from here before the server would, so that its log does not fill with aborted connections.
            let pool = pool::<sqlx::MySql>(connections).idle_timeout(idle_max / 2);
            let pool = pool.after_connect(move |connection, _| {
                let settings = settings.clone();
                Box::pin(async move {
                    // What others commit meanwhile is seen, and only rows that are really touched are locked.
                    connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
                    sqlx::raw_sql(AssertSqlSafe(settings)).execute(connection).await?;
                    Ok(())
                })
            });
            (Link::mysql(pool.connect_lazy_with(to)), None)
        }
        Address::Postgres(to) => {
            let to = to.options(postgres_settings(idle_max));
            let listening: PgPool = pool(1).connect_lazy_with(to.clone());
            (Link::postgres(pool(connections).connect_lazy_with(to)), Some(listening))
        }
    }
}

/// Session variables that MySQL and MariaDB both know. `wait_timeout` ends an idle session whether it is in a transaction or not;
/// `idle_transaction_timeout` exists in MariaDB only. The other two bound how long the server waits in the middle of a packet.
fn mysql_settings(idle_max: Duration) -> String {
    let seconds = idle_max.as_secs().max(1);
    format!(
        "SET SESSION innodb_lock_wait_timeout = 5, SESSION wait_timeout = {seconds}, SESSION net_read_timeout = {seconds}, \
         SESSION net_write_timeout = {seconds}"
    )
}

/// The first ends a transaction that is idle. The others end a session whose client does not answer any more although it holds no
/// transaction: the advisory lock under which tables are made belongs to the session.
fn postgres_settings(idle_max: Duration) -> [(&'static str, String); 5] {
    const PROBES: u64 = 3;
    let between = (idle_max.as_secs() / (PROBES + 1)).max(1);
    [
        ("idle_in_transaction_session_timeout", format!("{}ms", idle_max.as_millis())),
        ("tcp_keepalives_idle", between.to_string()),
        ("tcp_keepalives_interval", between.to_string()),
        ("tcp_keepalives_count", PROBES.to_string()),
        ("tcp_user_timeout", format!("{}ms", idle_max.as_millis())),
    ]
}

fn pool<DB: sqlx::Database>(connections: u32) -> PoolOptions<DB> {
    let options: PoolOptions<DB> = PoolOptions::new();
    options
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_WITHIN)
        .test_before_acquire(false)
        .before_acquire(|connection, state| {
            Box::pin(async move {
                // Often used ones need no question: that would be a round trip for each piece of work.
                Ok(state.idle_for < IDLE_UNTRIED || connection.ping().await.is_ok())
            })
        })
}
