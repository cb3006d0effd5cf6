//! What one would write by hand: the table of the sketch, batched statements, each its own transaction.

use duly_core::StoredMessage;
use sqlx::{
    AssertSqlSafe, MySqlPool, PgPool, QueryBuilder, mysql::MySqlPoolOptions, postgres::PgPoolOptions,
};

use crate::bed::{BATCH, DatabaseKind, Server};

pub(crate) enum Bare {
    Mysql(MySqlPool),
    Postgres(PgPool),
}

const COLUMNS: &str = "(message_id, topic, tag, body, properties, deliver_time_ms, status, sink) ";

impl Bare {
    pub(crate) async fn new(server: &Server, database: &str, kind: DatabaseKind) -> Self {
        match kind {
            DatabaseKind::Mysql => {
                server.run(
                    database,
                    "CREATE TABLE bare_message (message_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, \
                     topic VARCHAR(255) NOT NULL, tag VARCHAR(255), body LONGBLOB, properties LONGTEXT, deliver_time_ms BIGINT NOT NULL, \
                     status VARCHAR(16) NOT NULL, create_time TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), update_time \
                     TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), sink VARCHAR(64) NOT NULL, \
                     KEY (status, deliver_time_ms)) ENGINE = InnoDB DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin",
                );
                Self::Mysql(MySqlPoolOptions::new().max_connections(16).connect(database).await.unwrap())
            }
            DatabaseKind::Postgres => {
                server.run(
                    database,
                    "CREATE TABLE bare_message (message_id TEXT COLLATE \"C\" PRIMARY KEY, topic TEXT NOT NULL, tag TEXT, body BYTEA, \
                     properties TEXT, deliver_time_ms BIGINT NOT NULL, status TEXT COLLATE \"C\" NOT NULL, create_time TIMESTAMPTZ NOT NULL \
                     DEFAULT CURRENT_TIMESTAMP, update_time TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP, sink TEXT NOT NULL); \
                     CREATE INDEX bare_due ON bare_message (status, deliver_time_ms)",
                );
                Self::Postgres(PgPoolOptions::new().max_connections(16).connect(database).await.unwrap())
            }
        }
    }

    /// As many rows as wait on the other side.
    pub(crate) fn fill(server: &Server, database: &str, count: usize, first_due: u64) {
        let (numbers, id, body) = match server {
            Server::Mysql(_) => {
                (format!("seq_1_to_{count}"), "CONCAT('fill-', LPAD(seq, 10, '0'))", "REPEAT('x', 100)")
            }
            Server::Postgres(_) => (
                format!("generate_series(1, {count}) AS seq"),
                "'fill-' || LPAD(CAST(seq AS TEXT), 10, '0')",
                "convert_to(repeat('x', 100), 'UTF8')",
            ),
        };
        server.run(
            database,
            &format!(
                "INSERT INTO bare_message {COLUMNS} SELECT {id}, 'work', NULL, {body}, NULL, {first_due} + seq * 7, 'PENDING', 'queue' FROM \
                 {numbers}"
            ),
        );
        if let Server::Postgres(_) = server {
            server.run(database, "VACUUM ANALYZE bare_message");
        }
    }

    pub(crate) async fn insert(&self, batch: &[StoredMessage]) {
        let text = format!("INSERT INTO bare_message {COLUMNS}");
        macro_rules! insert {
            ($db:ty, $pool:expr) => {{
                let mut query = QueryBuilder::<$db>::new(text);
                query.push_values(batch, |mut row, message| {
                    row.push_bind(message.id.as_str()).push_bind(message.topic.as_str());
                    row.push_bind(None::<&str>).push_bind(message.body.as_bytes()).push_bind(None::<&str>);
                    row.push_bind(message.due.as_millis() as i64).push_bind("PENDING").push_bind("queue");
                });
                query.build().execute($pool).await.unwrap();
            }};
        }
        match self {
            Self::Mysql(pool) => insert!(sqlx::MySql, pool),
            Self::Postgres(pool) => insert!(sqlx::Postgres, pool),
        }
    }

    /// The pair of updates: claimed, settled.
    pub(crate) async fn deliver(&self, ids: &[String]) {
        assert_eq!(ids.len(), BATCH);
        for (from, to) in [("PENDING", "SENDING"), ("SENDING", "DELIVERED")] {
            let text = format!(
                "UPDATE bare_message SET status = '{to}', update_time = CURRENT_TIMESTAMP WHERE status = '{from}' AND message_id IN ("
            );
            macro_rules! update {
                ($db:ty, $pool:expr) => {{
                    let mut query = QueryBuilder::<$db>::new(text);
                    let mut list = query.separated(", ");
                    for id in ids {
                        list.push_bind(id.as_str());
                    }
                    query.push(")");
                    let done = query.build().execute($pool).await.unwrap();
                    assert_eq!(done.rows_affected(), BATCH as u64);
                }};
            }
            match self {
                Self::Mysql(pool) => update!(sqlx::MySql, pool),
                Self::Postgres(pool) => update!(sqlx::Postgres, pool),
            }
        }
    }

    /// The smallest commit there is.
    pub(crate) async fn commit(&self, n: i64) {
        let text = format!("UPDATE one_row SET n = {n}");
        match self {
            Self::Mysql(pool) => drop(sqlx::query(AssertSqlSafe(text)).execute(pool).await.unwrap()),
            Self::Postgres(pool) => drop(sqlx::query(AssertSqlSafe(text)).execute(pool).await.unwrap()),
        }
    }
}
