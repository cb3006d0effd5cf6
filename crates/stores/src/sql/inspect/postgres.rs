//! PostgreSQL.

use sqlx::{ConnectOptions, Connection, PgConnection, Row, postgres::PgConnectOptions};

use super::{Finding, Inspection, TABLES, Weight, is_utc, missing, numbers, too_old, wrong_zone};

/// The settings of the server.
#[derive(Debug, Clone)]
pub(super) struct ServerDetails {
    version: String,
    synchronous_commit: String,
    fsync: String,
    full_page_writes: String,
    /// The tables of Duly's that are not written to the log.
    unlogged: Vec<String>,
}

pub(super) async fn connect(to: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    to.connect().await
}

/// Settings that every user may read, and that the store needs before it is opened.
pub(super) async fn collect(connection: &mut PgConnection) -> Result<ServerDetails, sqlx::Error> {
    let select = "SELECT current_setting('server_version'), current_setting('synchronous_commit'), \
        current_setting('fsync'), current_setting('full_page_writes')";
    let row = sqlx::query(select).fetch_one(&mut *connection).await?;
    let unlogged = "SELECT relname::TEXT FROM pg_class WHERE relnamespace = current_schema()::regnamespace \
        AND relkind = 'r' AND relpersistence <> 'p' AND relname = ANY($1) ORDER BY relname";
    Ok(ServerDetails {
        version: row.try_get(0)?,
        synchronous_commit: row.try_get(1)?,
        fsync: row.try_get(2)?,
        full_page_writes: row.try_get(3)?,
        unlogged: sqlx::query_scalar(unlogged).bind(TABLES.as_slice()).fetch_all(connection).await?,
    })
}

pub(super) fn judge(details: &ServerDetails) -> Vec<Finding> {
    let mut found = Vec::new();
    if numbers(&details.version) < (13, 0) {
        found.push(too_old(&format!("PostgreSQL {}", details.version), "PostgreSQL 13"));
    }
    let mut volatile = |what: String, remedy: &str| found.push(Finding::new(Weight::Volatile, what, remedy));
    if details.synchronous_commit == "off" {
        let what = "a commit is not synced (synchronous_commit = off): the last of what was accepted is lost when the database crashes";
        let remedy = "set `synchronous_commit = on` in postgresql.conf, and for this user and database (`ALTER ROLE … RESET \
            synchronous_commit`, `ALTER DATABASE …`)";
        volatile(what.into(), remedy);
    }
    if details.fsync == "off" {
        let what = "nothing is synced (fsync = off): everything may be lost when the machine of the database crashes";
        volatile(what.into(), "set `fsync = on` in postgresql.conf");
    }
    if details.full_page_writes == "off" {
        let what = "pages that were torn by a crash cannot be mended (full_page_writes = off)";
        volatile(what.into(), "set `full_page_writes = on` in postgresql.conf");
    }
    if !details.unlogged.is_empty() {
        let names = details.unlogged.join(", ");
        let what =
            format!("PostgreSQL empties tables of Duly's after a crash, as they are UNLOGGED: {names}");
        volatile(what, "run `ALTER TABLE … SET LOGGED` for each");
    }
    found
}

pub(super) async fn inspect(to: &PgConnectOptions) -> Result<Inspection, sqlx::Error> {
    let mut connection = connect(to).await?;
    let details = collect(&mut connection).await?;
    let mut findings = judge(&details);
    let select = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', \
        CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), current_schema()::TEXT";
    let row = sqlx::query(select).fetch_one(&mut connection).await?;
    let (is_standby, is_read_only): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    let (time_ms, schema): (i64, Option<String>) = (row.try_get(2)?, row.try_get(3)?);
    if is_standby {
        let what = "this server is a standby: it can only be read";
        findings.push(Finding::new(Weight::Unfit, what, "point Duly at the server that is written to"));
    } else if is_read_only {
        let what = "transactions are read-only here (default_transaction_read_only = on)";
        let remedy =
            "point Duly at the server that is written to, or set `default_transaction_read_only = off`";
        findings.push(Finding::new(Weight::Unfit, what, remedy));
    }
    let zone = zone(&mut connection).await?;
    if !is_utc(&zone) {
        findings.push(wrong_zone(
            &zone,
            "`timezone = 'UTC'` in postgresql.conf, or by `ALTER DATABASE … SET timezone = 'UTC'`",
        ));
    }
    let tables = tables(&mut connection).await?;
    findings.extend(match schema {
        Some(schema) => rights(&mut connection, &schema).await?,
        None => {
            let what = "this user has no schema to work in: none of its search_path is there, or may be used";
            vec![Finding::new(
                Weight::Unfit,
                what,
                "CREATE SCHEMA duly AUTHORIZATION <user>, and set its search_path to it",
            )]
        }
    });
    let has_store = tables.iter().any(|table| table == "duly_store");
    let nodes = if tables.iter().any(|table| table == "duly_node") {
        // Without the right to look there is nobody to see, and that the right is missing was said already.
        let select = "SELECT convert_from(name, 'UTF8') FROM duly_node WHERE alive_until > $1 ORDER BY name";
        sqlx::query_scalar(select).bind(time_ms * 1000).fetch_all(&mut connection).await.unwrap_or_default()
    } else {
        Vec::new()
    };
    let _ = connection.close().await;
    Ok(Inspection {
        version: format!("PostgreSQL {}", details.version),
        findings,
        has_store,
        nodes,
        time_ms: u64::try_from(time_ms).unwrap_or_default(),
        packet_max: None,
    })
}

async fn tables(connection: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let select =
        "SELECT tablename::TEXT FROM pg_tables WHERE schemaname = current_schema() AND tablename = ANY($1)";
    sqlx::query_scalar(select).bind(TABLES.as_slice()).fetch_all(connection).await
}

/// The time zone of sessions that set none. This session's zone is set by its client, so the settings of the role, of the database and in
/// the files are read. A user who may not read the files gets `log_timezone`, which `initdb` sets to the same zone.
async fn zone(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let set = "SELECT split_part(setting, '=', 2) FROM pg_db_role_setting, unnest(setconfig) AS setting \
        WHERE lower(split_part(setting, '=', 1)) = 'timezone' \
        AND setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())) \
        AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = current_user)) \
        ORDER BY setrole = 0 OR setdatabase = 0, setrole = 0, setdatabase = 0 LIMIT 1";
    if let Some(zone) = sqlx::query_scalar(set).fetch_optional(&mut *connection).await? {
        return Ok(zone);
    }
    let in_files = "SELECT setting FROM pg_file_settings WHERE lower(name) = 'timezone' AND applied ORDER BY seqno DESC LIMIT 1";
    if let Ok(Some(zone)) = sqlx::query_scalar(in_files).fetch_optional(&mut *connection).await {
        return Ok(zone);
    }
    sqlx::query_scalar("SELECT current_setting('log_timezone')").fetch_one(connection).await
}

/// The rights that are missing: in the schema while a table is to be made there, and of the tables that are there.
async fn rights(connection: &mut PgConnection, schema: &str) -> Result<Vec<Finding>, sqlx::Error> {
    let mut lacking = Vec::new();
    let create: bool = sqlx::query_scalar("SELECT has_schema_privilege($1, 'CREATE')")
        .bind(schema)
        .fetch_one(&mut *connection)
        .await?;
    if !create {
        lacking.push("CREATE");
    }
    for right in ["SELECT", "INSERT", "UPDATE", "DELETE"] {
        let select = "SELECT COALESCE(bool_and(has_table_privilege(c.oid, $1)), TRUE) FROM pg_class c \
            WHERE relnamespace = $2::regnamespace AND relkind = 'r' AND relname = ANY($3)";
        let has: bool = sqlx::query_scalar(select)
            .bind(right)
            .bind(schema)
            .bind(TABLES.as_slice())
            .fetch_one(&mut *connection)
            .await?;
        if !has {
            lacking.push(right);
        }
    }
    let remedy = format!(
        "as an administrator: GRANT ALL ON SCHEMA {schema} TO <user>; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO <user>"
    );
    let mut found: Vec<_> = missing(&lacking, remedy).into_iter().collect();
    let foreign = "SELECT relname::TEXT FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r' \
        AND relname = ANY($2) AND NOT pg_has_role(relowner, 'USAGE') ORDER BY relname";
    let foreign: Vec<String> =
        sqlx::query_scalar(foreign).bind(schema).bind(TABLES.as_slice()).fetch_all(connection).await?;
    if !foreign.is_empty() {
        let what = format!(
            "tables of Duly's belong to another user, so a later version cannot change them: {}",
            foreign.join(", ")
        );
        found.push(Finding::new(Weight::Odd, what, "ALTER TABLE … OWNER TO <user> for each"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ServerDetails {
        ServerDetails {
            version: "15.6 (Debian 15.6-0+deb12u1)".into(),
            synchronous_commit: "on".into(),
            fsync: "on".into(),
            full_page_writes: "on".into(),
            unlogged: Vec::new(),
        }
    }

    #[test]
    fn what_loses_messages_is_found() {
        assert_eq!(judge(&good()), []);
        assert_eq!(judge(&ServerDetails { synchronous_commit: "local".into(), ..good() }), []);
        let one = |details: ServerDetails| {
            let found = judge(&details);
            assert_eq!(found.len(), 1, "{found:?}");
            found.into_iter().next().map(|finding| (finding.weight, finding.what)).unwrap()
        };
        let (weight, what) = one(ServerDetails { synchronous_commit: "off".into(), ..good() });
        assert!(weight == Weight::Volatile && what.contains("synchronous_commit = off"), "{what}");
        let (weight, what) = one(ServerDetails { fsync: "off".into(), ..good() });
        assert!(weight == Weight::Volatile && what.contains("fsync = off"), "{what}");
        let (weight, what) = one(ServerDetails { full_page_writes: "off".into(), ..good() });
        assert!(weight == Weight::Volatile && what.contains("full_page_writes = off"), "{what}");
        let (weight, what) = one(ServerDetails { unlogged: vec!["duly_lane".into()], ..good() });
        assert!(weight == Weight::Volatile && what.contains("UNLOGGED: duly_lane"), "{what}");
        let (weight, what) = one(ServerDetails { version: "12.18".into(), ..good() });
        assert!(weight == Weight::Unfit && what.contains("PostgreSQL 12.18"), "{what}");
    }
}
