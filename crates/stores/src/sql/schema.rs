//! The tables, and how they came to be: one step after another, each under a lock and noted down.

use duly_core::store::{StoreError, StoreErrorKind};

use super::{
    Options,
    connection::{Dialect, Link, Session, Statement},
    fault::{Fault, garbled},
    open::START_WITHIN,
};

/// The steps, in order. A step that was ever released is never changed: the next one changes what it made.
const STEPS: [(&str, &str); 1] =
    [(include_str!("schema/mysql-3.sql"), include_str!("schema/postgres-3.sql"))];
/// The number of the first step, and of the layout that it makes. Tables with a smaller number are older than the first release: they
/// have other columns and are refused.
const FIRST_STEP: usize = 3;
const LAST_STEP: usize = FIRST_STEP + STEPS.len() - 1;
/// The index of what the index in Redis does not have, made for the redis+mysql store only.
const REDIS_INDEX_MARKS: &str = "CREATE INDEX delay_message_unindexed ON delay_message (unindexed_at)";
/// One for all stores of a PostgreSQL database: any number that is not somebody else's.
const LOCK: i64 = 0x6475_6c79;

/// Sees to it that the tables are there and of this version. Returns the generation of the store.
pub(super) async fn prepare(
    link: &Link,
    options: &Options,
    has_redis_index: bool,
) -> Result<String, StoreError> {
    let prepared = async {
        for tries in 1.. {
            match prepare_once(link, options, has_redis_index).await {
                // Another node is at it, and takes longer than the server lets anybody wait for a lock.
                Err(fault @ Fault::RolledBack(_)) => {
                    tracing::warn!(tries, ?fault, "tables locked by another process; retried");
                    let wait = fault.wait(tries.min(10), options.instance).unwrap_or_default();
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "a moment for a real server to let go of its locks"
                    )]
                    tokio::time::sleep(wait).await;
                }
                prepared => return prepared?,
            }
        }
        Err(busy())
    };
    tokio::time::timeout(START_WITHIN, prepared).await.unwrap_or_else(|_| Err(busy()))
}

async fn prepare_once(
    link: &Link,
    options: &Options,
    has_redis_index: bool,
) -> Result<Result<String, StoreError>, Fault> {
    let mut session = link.session().await?;
    lock(&mut session, link.dialect()).await?;
    let prepared = prepare_locked(&mut session, link.dialect(), options, has_redis_index).await;
    // Also freed when the connection ends.
    let freed = unlock(&mut session, link.dialect()).await;
    let generation = prepared?;
    freed?;
    Ok(generation)
}

fn busy() -> StoreError {
    let what = "another process has been preparing the tables of this database for a minute; try again when it is done";
    StoreError::new(StoreErrorKind::Unavailable, what)
}

async fn prepare_locked(
    session: &mut Session,
    dialect: Dialect,
    options: &Options,
    has_redis_index: bool,
) -> Result<Result<String, StoreError>, Fault> {
    session
        .plain("CREATE TABLE IF NOT EXISTS duly_store (name VARCHAR(64) NOT NULL PRIMARY KEY, value VARCHAR(255) NOT NULL)")
        .await?;
    let known = read(session, dialect, "step").await?;
    let known: Option<usize> =
        known.map(|text| text.parse()).transpose().map_err(|_| garbled("the version of the tables"))?;
    if let Some(what) = known.and_then(other_layout) {
        return Ok(Err(StoreError::new(StoreErrorKind::Unavailable, what)));
    }
    let first = known.map_or(FIRST_STEP, |known| known + 1);
    for (number, (mysql, postgres)) in (FIRST_STEP..).zip(&STEPS).skip_while(|(number, _)| *number < first) {
        let text = if dialect == Dialect::Mysql { mysql } else { postgres };
        // MySQL commits each statement of this kind by itself: a step that was cut off begins again, and so must not
        // mind what it had made.
        for statement in text.split(";\n").map(str::trim).filter(|statement| !statement.is_empty()) {
            session.run(Statement::new(dialect, statement)).await?;
        }
        write(session, dialect, "step", &number.to_string()).await?;
    }
    if has_redis_index && read(session, dialect, "redis_and_mysql").await?.is_none() {
        if !has_index(session, dialect).await? {
            session.run(Statement::new(dialect, REDIS_INDEX_MARKS)).await?;
        }
        write(session, dialect, "redis_and_mysql", "1").await?;
    }
    if read(session, dialect, "generation").await?.is_none() {
        write(session, dialect, "shards", &options.shards.to_string()).await?;
        write(session, dialect, "generation", &format!("{:016x}", options.instance)).await?;
    }
    let shards = read(session, dialect, "shards").await?.unwrap_or_default();
    if shards != options.shards.to_string() {
        let what = format!(
            "the store in this database was made with {shards} shards and this one was asked for with {}; set shards to {shards}",
            options.shards
        );
        return Ok(Err(StoreError::new(StoreErrorKind::Unavailable, what)));
    }
    Ok(read(session, dialect, "generation").await?.ok_or_else(|| garbled("the generation of the store")))
}

/// Why tables of this layout cannot be used.
fn other_layout(found: usize) -> Option<String> {
    if found > LAST_STEP {
        return Some(format!(
            "the tables in this database are of a newer Duly (layout {found}, and this one knows {LAST_STEP}); use the Duly that made them"
        ));
    }
    (found < FIRST_STEP).then(|| {
        format!(
            "the tables in this database are of an older Duly (layout {found}, and this one knows {LAST_STEP}) and cannot be read; \
             deliver what they hold with the Duly that made them, or use an empty database"
        )
    })
}

/// It may be there, if whoever made it had no time to note it down.
async fn has_index(session: &mut Session, dialect: Dialect) -> Result<bool, Fault> {
    let mut select = Statement::new(dialect, "SELECT 1 FROM ");
    select.push_as(
        "information_schema.statistics WHERE table_schema = DATABASE() AND index_name = 'delay_message_unindexed'",
        "pg_indexes WHERE schemaname = current_schema() AND indexname = 'delay_message_unindexed'",
    );
    Ok(!session.rows(select).await?.is_empty())
}

async fn lock(session: &mut Session, dialect: Dialect) -> Result<(), Fault> {
    let mut select = Statement::new(dialect, "SELECT ");
    match dialect {
        Dialect::Mysql => select.push("GET_LOCK(CONCAT('duly:', DATABASE()), 60)"),
        Dialect::Postgres => select.push("1 FROM pg_advisory_lock(").bind(LOCK).push(")"),
    };
    let rows = session.rows(select).await?;
    if rows.first().is_none_or(|row| row.maybe_int(0).ok().flatten() == Some(0)) {
        return Err(busy().into());
    }
    Ok(())
}

async fn unlock(session: &mut Session, dialect: Dialect) -> Result<(), Fault> {
    let mut select = Statement::new(dialect, "SELECT ");
    match dialect {
        Dialect::Mysql => select.push("RELEASE_LOCK(CONCAT('duly:', DATABASE()))"),
        Dialect::Postgres => select.push("1 FROM pg_advisory_unlock(").bind(LOCK).push(")"),
    };
    session.rows(select).await?;
    Ok(())
}

async fn read(session: &mut Session, dialect: Dialect, name: &str) -> Result<Option<String>, Fault> {
    let mut select = Statement::new(dialect, "SELECT value FROM duly_store WHERE name = ");
    select.bind(name);
    session.rows(select).await?.first().map(|row| row.text(0)).transpose()
}

async fn write(session: &mut Session, dialect: Dialect, name: &str, value: &str) -> Result<(), Fault> {
    let mut insert = Statement::new(dialect, "INSERT INTO duly_store (name, value) VALUES (");
    insert.bind(name).push(", ").bind(value).push(")");
    insert.push_as(
        " ON DUPLICATE KEY UPDATE value = VALUES(value)",
        " ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
    );
    session.run(insert).await?;
    Ok(())
}
