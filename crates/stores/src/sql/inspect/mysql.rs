//! MySQL and MariaDB.

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection, Row, mysql::MySqlConnectOptions};

use super::{Finding, Inspection, TABLES, Weight, is_utc, missing, numbers, too_old, wrong_zone};

/// Errors of statements that were refused for want of a right.
const DENIED: [u16; 4] = [1044, 1142, 1143, 1227];

/// The settings of the server.
#[derive(Debug, Clone)]
pub(super) struct ServerDetails {
    version: String,
    flush: i64,
    binary_log: bool,
    sync_binlog: i64,
    read_only: bool,
    /// The tables of Duly's that are not InnoDB's, each with its engine.
    other_engines: Vec<String>,
}

pub(super) async fn connect(to: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
    to.connect().await
}

/// Settings that every user may read, and that the store needs before it is opened.
pub(super) async fn collect(connection: &mut MySqlConnection) -> Result<ServerDetails, sqlx::Error> {
    let select = "SELECT @@version, CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS SIGNED), \
        CAST(@@GLOBAL.log_bin AS SIGNED), CAST(@@GLOBAL.sync_binlog AS SIGNED), CAST(@@GLOBAL.read_only AS SIGNED)";
    let row = sqlx::query(select).fetch_one(&mut *connection).await?;
    let engines = "SELECT CONCAT(table_name, ' (', engine, ')') FROM information_schema.tables \
        WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND engine <> 'InnoDB' \
        AND (table_name = 'delay_message' OR table_name LIKE 'duly\\_%') ORDER BY table_name";
    Ok(ServerDetails {
        version: row.try_get(0)?,
        flush: row.try_get(1)?,
        binary_log: row.try_get::<i64, _>(2)? != 0,
        sync_binlog: row.try_get(3)?,
        read_only: row.try_get::<i64, _>(4)? != 0,
        other_engines: sqlx::query_scalar(engines).fetch_all(connection).await?,
    })
}

pub(super) fn judge(details: &ServerDetails) -> Vec<Finding> {
    let mut found = Vec::new();
    let (is_mariadb, number) = (details.version.contains("MariaDB"), numbers(&details.version));
    if is_mariadb && number < (10, 6) {
        found.push(too_old(&format!("MariaDB {}", details.version), "MariaDB 10.6"));
    } else if !is_mariadb && number < (8, 0) {
        found.push(too_old(&format!("MySQL {}", details.version), "MySQL 8.0"));
    }
    if !details.other_engines.is_empty() {
        let what = format!(
            "tables of Duly's are not InnoDB's, so nothing holds them together: {}",
            details.other_engines.join(", ")
        );
        let remedy = "stop all nodes and run `ALTER TABLE … ENGINE = InnoDB` for each";
        found.push(Finding::new(Weight::Unfit, what, remedy));
    }
    if details.flush != 1 {
        let what = format!(
            "a commit is not synced (innodb_flush_log_at_trx_commit = {}): up to a second of what was accepted is lost when the \
             database or its machine crashes",
            details.flush
        );
        let remedy = "set `innodb_flush_log_at_trx_commit = 1` in its configuration, or by `SET GLOBAL`";
        found.push(Finding::new(Weight::Volatile, what, remedy));
    }
    if details.binary_log && details.sync_binlog != 1 {
        let what = format!(
            "the binary log is not synced with each commit (sync_binlog = {}): after a crash of its machine it may lack what was \
             accepted, and replicas never get it",
            details.sync_binlog
        );
        let remedy = "set `sync_binlog = 1` in its configuration, or by `SET GLOBAL`";
        found.push(Finding::new(Weight::Volatile, what, remedy));
    }
    found
}

pub(super) async fn inspect(to: &MySqlConnectOptions) -> Result<Inspection, sqlx::Error> {
    let mut connection = connect(to).await?;
    let details = collect(&mut connection).await?;
    let mut findings = judge(&details);
    if details.read_only {
        let what = "this server is read-only (read_only = ON), as replicas are";
        findings.push(Finding::new(Weight::Unfit, what, "point Duly at the server that is written to"));
    } else if is_replica(&mut connection).await {
        let what =
            "this server is a replica: what is written here never reaches the server that it copies from";
        findings.push(Finding::new(Weight::Odd, what, "point Duly at the server that is written to"));
    }
    let select = "SELECT IF(@@GLOBAL.time_zone = 'SYSTEM', @@system_time_zone, @@GLOBAL.time_zone), \
        CAST(@@GLOBAL.max_allowed_packet AS SIGNED), CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)";
    let row = sqlx::query(select).fetch_one(&mut connection).await?;
    let (zone, packet_max, time_ms): (String, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if !is_utc(&zone) {
        findings.push(wrong_zone(&zone, "`default_time_zone = '+00:00'` in its configuration"));
    }
    let tables = tables(&mut connection).await?;
    findings.extend(rights(&mut connection, &tables).await?);
    let has_store = tables.iter().any(|table| table == "duly_store");
    let nodes = if tables.iter().any(|table| table == "duly_node") {
        // Without the right to look there is nobody to see, and that the right is missing was said already.
        let select = "SELECT CAST(name AS CHAR) FROM duly_node WHERE alive_until > ? ORDER BY name";
        sqlx::query_scalar(select).bind(time_ms * 1000).fetch_all(&mut connection).await.unwrap_or_default()
    } else {
        Vec::new()
    };
    let make = if details.version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    let _ = connection.close().await;
    Ok(Inspection {
        version: format!("{make} {}", details.version),
        findings,
        has_store,
        nodes,
        time_ms: u64::try_from(time_ms).unwrap_or_default(),
        packet_max: u64::try_from(packet_max).ok(),
    })
}

async fn tables(connection: &mut MySqlConnection) -> Result<Vec<String>, sqlx::Error> {
    let select = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() \
        AND (table_name = 'delay_message' OR table_name LIKE 'duly\\_%')";
    sqlx::query_scalar(select).fetch_all(connection).await
}

/// Not every user may ask: one that may not gets no finding.
async fn is_replica(connection: &mut MySqlConnection) -> bool {
    let status = sqlx::raw_sql("SHOW REPLICA STATUS").fetch_all(&mut *connection).await;
    if let Ok(rows) = status {
        return !rows.is_empty();
    }
    // MariaDB answers every user.
    let running = sqlx::raw_sql("SHOW GLOBAL STATUS LIKE 'Slave_running'").fetch_all(connection).await;
    running
        .is_ok_and(|rows| rows.iter().any(|row| row.try_get::<String, _>(1).is_ok_and(|word| word == "ON")))
}

/// The rights that are missing, tried one by one by statements that the server checks the right of first and that then change
/// nothing: the table is not there, or the column, or no row fits.
async fn rights(connection: &mut MySqlConnection, tables: &[String]) -> Result<Vec<Finding>, sqlx::Error> {
    let made: Vec<_> = TABLES.into_iter().filter(|table| tables.iter().any(|there| there == table)).collect();
    let of = if made.is_empty() { vec!["duly_doctor"] } else { made };
    let mut lacking = Vec::new();
    for (right, attempt) in [
        ("SELECT", "SELECT 1 FROM {} LIMIT 0"),
        ("INSERT", "INSERT INTO {} (duly_doctor) VALUES (0)"),
        ("UPDATE", "UPDATE {} SET duly_doctor = 0 WHERE 1 = 0"),
        ("DELETE", "DELETE FROM {} WHERE 1 = 0"),
        ("CREATE", "CREATE TABLE duly_doctor (twice INT, twice INT)"),
        ("ALTER", "ALTER TABLE {} DROP COLUMN duly_doctor"),
        ("INDEX", "CREATE INDEX duly_doctor ON {} (duly_doctor)"),
    ] {
        for table in &of {
            let statement = AssertSqlSafe(attempt.replace("{}", table));
            if let Err(error) = sqlx::raw_sql(statement).execute(&mut *connection).await
                && is_denied(&error)?
            {
                lacking.push(right);
                break;
            }
        }
    }
    let grant = |rights: &[&str]| {
        format!("as an administrator: GRANT {} ON <database>.* TO <user>", rights.join(", "))
    };
    let (later, now): (Vec<_>, Vec<_>) = lacking.into_iter().partition(|right| *right == "ALTER");
    let mut found: Vec<_> = missing(&now, grant(&now)).into_iter().collect();
    if !later.is_empty() {
        let what = "this user may not change tables (ALTER), so a later version of Duly could not bring them up to date";
        found.push(Finding::new(Weight::Odd, what, grant(&later)));
    }
    Ok(found)
}

/// Whether it was refused for want of a right. Other refusals are what the statement is made for; a lost connection is not.
fn is_denied(error: &sqlx::Error) -> Result<bool, sqlx::Error> {
    let refused = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>());
    match refused {
        Some(refused) => Ok(DENIED.contains(&refused.number())),
        None => Err(sqlx::Error::Io(std::io::Error::other(error.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ServerDetails {
        ServerDetails {
            version: "8.0.36".into(),
            flush: 1,
            binary_log: true,
            sync_binlog: 1,
            read_only: false,
            other_engines: Vec::new(),
        }
    }

    #[test]
    fn what_loses_messages_is_found() {
        assert_eq!(judge(&good()), []);
        assert_eq!(
            judge(&ServerDetails { binary_log: false, sync_binlog: 0, ..good() }),
            [],
            "there is none to sync"
        );
        assert_eq!(judge(&ServerDetails { version: "10.6.0-MariaDB".into(), ..good() }), []);
        let one = |details: ServerDetails| {
            let found = judge(&details);
            assert_eq!(found.len(), 1, "{found:?}");
            found.into_iter().next().map(|finding| (finding.weight, finding.what)).unwrap()
        };
        let (weight, what) = one(ServerDetails { flush: 2, ..good() });
        assert!(weight == Weight::Volatile && what.contains("innodb_flush_log_at_trx_commit = 2"), "{what}");
        let (weight, what) = one(ServerDetails { sync_binlog: 1000, ..good() });
        assert!(weight == Weight::Volatile && what.contains("sync_binlog = 1000"), "{what}");
        let (weight, what) =
            one(ServerDetails { other_engines: vec!["delay_message (MyISAM)".into()], ..good() });
        assert!(weight == Weight::Unfit && what.contains("delay_message (MyISAM)"), "{what}");
        for version in ["5.7.44-log", "10.5.23-MariaDB-log"] {
            let (weight, what) = one(ServerDetails { version: version.into(), ..good() });
            assert!(weight == Weight::Unfit && what.contains(version), "{what}");
        }
    }
}
