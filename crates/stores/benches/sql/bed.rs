//! Servers, stores and messages.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use duly::{Clock, SystemClock};
use duly_core::{
    Body, Lane, MessageId, Now, SinkName, StoredMessage, Timestamp, Topic,
    store::{Claim, Holder, Insert, LeasedMessage, Settle, Settlement},
};
use duly_stores::{ServerClock, SqlStore, sql};
use testkit::servers::{
    mysql::{self, Mysql},
    postgres::{self, Postgres},
};

/// How many go with one call, here and there.
pub(crate) const BATCH: usize = 100;
pub(crate) const LEASE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Mysql,
    Postgres,
}

impl DatabaseKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
        }
    }
}

/// A server with memory as a small one of a team's has.
pub(crate) enum Server {
    Mysql(Mysql),
    Postgres(Postgres),
}

impl Server {
    pub(crate) fn start(kind: DatabaseKind) -> Self {
        match kind {
            DatabaseKind::Mysql => {
                let options = mysql::Options { buffer_pool_mb: 2048, ..mysql::Options::default() };
                Self::Mysql(Mysql::with(options))
            }
            DatabaseKind::Postgres => {
                let more = ["max_wal_size=4GB", "checkpoint_timeout=15min"].map(str::to_owned).to_vec();
                Self::Postgres(Postgres::with(postgres::Options { shared_buffers_mb: 2048, more }))
            }
        }
    }

    pub(crate) fn database(&self) -> String {
        match self {
            Self::Mysql(server) => server.fresh_database(),
            Self::Postgres(server) => server.fresh_database(),
        }
    }

    pub(crate) fn run(&self, database: &str, statements: &str) -> String {
        match self {
            Self::Mysql(server) => server.run_in(database, statements),
            Self::Postgres(server) => server.run_in(database, statements),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn clock_time() -> Instant {
    Instant::now()
}

pub(crate) fn machine() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new().unwrap())
}

pub(crate) async fn store(url: &str, retention_max: usize) -> (Arc<SqlStore>, ServerClock) {
    let options = sql::Options { retention_max, ..sql::Options::new(rand()) };
    let (store, clock) = SqlStore::join(url, options, machine()).await.unwrap();
    (Arc::new(store), clock)
}

fn rand() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

pub(crate) fn lane() -> Lane {
    Lane::Queue(Topic::parse("work").unwrap())
}

/// The `n`th message, due at `due`, with an id as Duly makes them.
pub(crate) fn message(n: usize, made: Timestamp, due: Timestamp, body: usize) -> StoredMessage {
    let id = MessageId::generate(made, n as u128);
    let mut message = StoredMessage::new(id, SinkName::queue(), Topic::parse("work").unwrap(), due);
    message.body = Body::text("x".repeat(body));
    message
}

pub(crate) fn insert(message: StoredMessage) -> Insert {
    Insert { id_is_generated: true, ..Insert::new(message) }
}

pub(crate) fn claim() -> Claim {
    Claim { lane: lane(), limit: BATCH, lease: LEASE, holder: Holder::Process }
}

pub(crate) fn delivered(leased: &[LeasedMessage]) -> Vec<Settle> {
    let settlement = Settlement::Delivered { receipt: Some("1-1".into()) };
    leased
        .iter()
        .map(|leased| Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() })
        .collect()
}

pub(crate) fn later(now: Now) -> Timestamp {
    now.wall().saturating_add(Duration::from_secs(30 * 24 * 3600))
}

/// Puts messages there that wait for a time from a month away on, as if they had been accepted.
pub(crate) fn fill(server: &Server, database: &str, from: usize, to: usize, lane_no: i64, first_due: u64) {
    for begin in (from..to).step_by(500_000) {
        let end = (begin + 500_000).min(to);
        // Any shard will do for what is not claimed.
        let (numbers, id, queue) = match server {
            Server::Mysql(_) => (
                format!("seq_{}_to_{end}", begin + 1),
                "CONCAT('fill-', LPAD(seq, 10, '0'))".to_owned(),
                format!("{lane_no} * 256 + seq % 16"),
            ),
            Server::Postgres(_) => (
                format!("generate_series({}, {end}) AS seq", begin + 1),
                "'fill-' || LPAD(CAST(seq AS TEXT), 10, '0')".to_owned(),
                format!("{lane_no} * 256 + seq % 16"),
            ),
        };
        let body = match server {
            Server::Mysql(_) => "REPEAT('x', 100)",
            Server::Postgres(_) => "convert_to(repeat('x', 100), 'UTF8')",
        };
        let statement = format!(
            "INSERT INTO delay_message (message_id, sink, topic, content_kind, body, deliver_time_ms, priority, ready_time_ms, content_hash, \
             lane_no, queue_no, queue_at, queue_rank) SELECT {id}, 'queue', 'work', 'text', {body}, {first_due} + seq * 7, 4, \
             {first_due} + seq * 7, seq, {lane_no}, {queue}, ({first_due} + seq * 7) * 1000, 5 FROM {numbers}"
        );
        server.run(database, &statement);
    }
    if let Server::Postgres(_) = server {
        server.run(database, "VACUUM ANALYZE delay_message");
    }
    server.run(
        database,
        &format!("INSERT INTO duly_count (kind, what, slot, n) VALUES (0, 0, {from}, {0}), (1, {lane_no}, {from}, {0})", to - from),
    );
}

/// The number of the lane in the database.
pub(crate) fn lane_no(server: &Server, database: &str) -> i64 {
    server.run(database, "SELECT MAX(lane_no) FROM duly_lane").trim().parse().unwrap()
}
