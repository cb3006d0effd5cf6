use duly_stores::sql::{Options, Weight};
use testkit::servers::postgres::{self, Postgres};

use crate::{inspection, only, open, refused, refused_unless_allowed};

fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

#[test]
fn a_good_server_is_taken_and_nodes_on_it_are_seen() {
    if !postgres::installed() {
        return;
    }
    let url = postgres::shared().fresh_database();
    postgres::shared().run(&format!("ALTER DATABASE \"{}\" SET timezone = 'UTC'", name_of(&url)));
    let seen = inspection(&url);
    assert_eq!(seen.findings, []);
    assert!(seen.version.starts_with("PostgreSQL 1") && seen.time_ms > 1_700_000_000_000, "{seen:?}");
    assert!(!seen.has_store && seen.nodes.is_empty() && seen.packet_max.is_none(), "{seen:?}");
    let store = open(&url, Options { node: "né".into(), ..Options::new(1) }).unwrap();
    assert_eq!(duly_core::Store::durability(&store), duly_core::store::Durability::Database);
    let seen = inspection(&url);
    assert_eq!((seen.findings, seen.has_store, seen.nodes), (vec![], true, vec!["né".to_owned()]));
}

#[test]
fn commits_that_are_not_synced_are_refused_unless_allowed() {
    if !postgres::installed() {
        return;
    }
    let more = ["fsync=off", "full_page_writes=off"].map(str::to_owned).to_vec();
    let server = Postgres::with(postgres::Options { more, ..Default::default() });
    let url = server.fresh_database();
    for word in ["fsync = off", "full_page_writes = off"] {
        refused_unless_allowed(&url, word);
    }
    // Whoever says so for a user, a database or in the address says so for Duly.
    let server = postgres::shared();
    let url = server.fresh_database();
    refused_unless_allowed(&format!("{url}?options[synchronous_commit]=off"), "synchronous_commit = off");
    server.run(&format!("ALTER DATABASE \"{}\" SET synchronous_commit = off", name_of(&url)));
    refused_unless_allowed(&url, "synchronous_commit = off");
    server.run(&format!("ALTER DATABASE \"{}\" SET synchronous_commit = local", name_of(&url)));
    open(&url, Options::new(2)).unwrap();
    server.run_in(&url, "ALTER TABLE delay_message SET UNLOGGED");
    refused_unless_allowed(&url, "UNLOGGED: delay_message");
}

#[test]
fn another_zone_and_a_read_only_database_are_told() {
    if !postgres::installed() {
        return;
    }
    let server = Postgres::single();
    let url = server.fresh_database();
    let zone = |word: &str| {
        let found = only(&url);
        assert!(
            found.weight == Weight::Odd && found.what.contains(&format!("{word}, not UTC: ")),
            "{found:?}"
        );
        assert!(found.what.contains("create_time") && found.remedy.contains("timezone"), "{found:?}");
    };
    server.run("ALTER SYSTEM SET timezone = 'Asia/Tokyo'");
    zone("Asia/Tokyo");
    server.run(&format!("ALTER DATABASE \"{}\" SET TimeZone = 'Asia/Shanghai'", name_of(&url)));
    zone("Asia/Shanghai");
    server.run("ALTER ROLE duly SET timezone = 'Europe/Berlin'");
    zone("Europe/Berlin");
    server.run("ALTER ROLE duly SET timezone = 'UTC'");
    server.run(&format!("ALTER DATABASE \"{}\" SET default_transaction_read_only = on", name_of(&url)));
    let found = only(&url);
    assert!(
        found.weight == Weight::Unfit && found.what.contains("default_transaction_read_only"),
        "{found:?}"
    );
    let error = open(&url, Options::new(1)).unwrap_err().what;
    assert!(error.contains("only lets itself be read"), "{error}");
}

#[test]
fn rights_that_are_missing_are_named() {
    if !postgres::installed() {
        return;
    }
    let server = Postgres::single();
    let url = server.database("shop");
    server.run("CREATE ROLE weak LOGIN; ALTER ROLE weak SET timezone = 'UTC'");
    let weak = url.replace("duly@", "weak@");
    server.run_in("shop", "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let found = only(&weak);
    assert!(found.weight == Weight::Unfit && found.what.ends_with("needs: CREATE"), "{found:?}");
    let error = open(&weak, Options::new(1)).unwrap_err().what;
    assert!(error.contains("does not let this user do what Duly needs"), "{error}");

    server.run_in("shop", "GRANT CREATE ON SCHEMA public TO weak");
    assert_eq!(inspection(&weak).findings, []);
    drop(open(&url, Options::new(1)).unwrap());
    let found = inspection(&weak).findings;
    assert!(found[0].what.ends_with("needs: SELECT, INSERT, UPDATE, DELETE"), "{found:?}");
    assert!(found[0].remedy.contains("GRANT ALL ON ALL TABLES"), "{found:?}");
    assert!(found[1].weight == Weight::Odd && found[1].what.contains("belong to another user"), "{found:?}");
    server.run_in(
        "shop",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO weak; REVOKE DELETE ON duly_count FROM weak",
    );
    assert!(inspection(&weak).findings[0].what.ends_with("needs: DELETE"));

    server.run("ALTER ROLE weak SET search_path = nowhere");
    let found = only(&weak);
    assert!(found.what.contains("no schema to work in"), "{found:?}");
}

#[test]
fn who_is_not_let_in_is_told_why() {
    if !postgres::installed() {
        return;
    }
    let server = Postgres::single();
    let port = server.port();
    refused(
        &format!("postgres://duly@127.0.0.1:{port}/nowhere"),
        &["no such database", "nowhere", "create it"],
    );
    refused(
        &format!("postgres://nobody:planted@127.0.0.1:{port}/postgres"),
        &["does not let this user in", "nobody"],
    );
}
