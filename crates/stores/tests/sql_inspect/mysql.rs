use duly_stores::sql::{Options, Weight};
use testkit::servers::mysql::{self, Mysql};

use crate::{inspection, only, open, refused, refused_unless_allowed};

/// A user who may do just this, at a new database; the address to come by.
fn user(server: &Mysql, name: &str, grants: &str) -> String {
    server.run(&format!(
        "CREATE DATABASE {name}; CREATE USER {name}@'%'; GRANT {grants} ON {name}.* TO {name}@'%'"
    ));
    format!("mysql://{name}@127.0.0.1:{}/{name}", server.port())
}

fn tables(server: &Mysql, database: &str) -> String {
    server.run(&format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}' ORDER BY 1"
    ))
}

#[test]
fn a_good_server_is_taken_and_nodes_on_it_are_seen() {
    if !mysql::installed() {
        return;
    }
    let url = mysql::shared().fresh_database();
    let seen = inspection(&url);
    assert_eq!(seen.findings, []);
    assert!(seen.version.starts_with("MariaDB 1") && seen.time_ms > 1_700_000_000_000, "{seen:?}");
    assert!(!seen.has_store && seen.nodes.is_empty() && seen.packet_max >= Some(1 << 20), "{seen:?}");
    let store = open(&url, Options { node: "né".into(), ..Options::new(1) }).unwrap();
    assert_eq!(duly_core::Store::durability(&store), duly_core::store::Durability::Database);
    let seen = inspection(&url);
    assert_eq!((seen.findings, seen.has_store, seen.nodes), (vec![], true, vec!["né".to_owned()]));
}

#[test]
fn commits_that_are_not_synced_are_refused_unless_allowed() {
    if !mysql::installed() {
        return;
    }
    let server = Mysql::with(mysql::Options {
        more: vec!["--log-bin".into(), "--sync-binlog=1".into()],
        ..Default::default()
    });
    let url = server.fresh_database();
    assert_eq!(inspection(&url).findings, []);
    server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    refused_unless_allowed(&url, "innodb_flush_log_at_trx_commit = 2");
    server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL sync_binlog = 0");
    refused_unless_allowed(&url, "sync_binlog = 0");
    server.run("SET GLOBAL sync_binlog = 1");
    open(&url, Options::new(2)).unwrap();
}

#[test]
fn another_zone_a_read_only_server_and_a_replica_are_told() {
    if !mysql::installed() {
        return;
    }
    let server = Mysql::single();
    let url = server.fresh_database();
    server.run("SET GLOBAL time_zone = '+08:00'");
    let found = only(&url);
    assert!(found.weight == Weight::Odd && found.what.contains("+08:00, not UTC: "), "{found:?}");
    assert!(found.what.contains("create_time") && found.remedy.contains("default_time_zone"), "{found:?}");
    server.run("SET GLOBAL time_zone = '+00:00'; SET GLOBAL read_only = 1");
    let found = only(&url);
    assert!(found.weight == Weight::Unfit && found.what.contains("read_only = ON"), "{found:?}");
    server.run("SET GLOBAL read_only = 0; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'x'");
    let found = only(&url);
    assert!(found.weight == Weight::Odd && found.what.contains("replica"), "{found:?}");
}

#[test]
fn rights_that_are_missing_are_named_and_nothing_is_left_behind() {
    if !mysql::installed() {
        return;
    }
    let server = Mysql::single();
    const ALL: [&str; 7] = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "INDEX"];
    let url = user(&server, "whole", &ALL.join(", "));
    assert_eq!(inspection(&url).findings, [], "before there is a store");
    assert_eq!(tables(&server, "whole"), "");
    open(&url, Options::new(1)).unwrap();
    let made = tables(&server, "whole");
    assert_eq!(inspection(&url).findings, [], "and after");
    for right in ALL {
        let name = format!("no_{}", right.to_lowercase());
        let others: Vec<_> = ALL.into_iter().filter(|other| *other != right).collect();
        let url = user(&server, &name, &others.join(", "));
        // A store that somebody else has made is looked at in another way.
        for _ in 0..2 {
            let found = only(&url);
            assert_eq!(found.weight, if right == "ALTER" { Weight::Odd } else { Weight::Unfit }, "{found:?}");
            assert!(found.what.contains(right), "{right}: {found:?}");
            assert!(found.remedy.contains(&format!("GRANT {right} ON")), "{found:?}");
            let root = format!("{}/{name}", server.url());
            open(&root, Options::new(1)).unwrap();
        }
        assert_eq!(tables(&server, &name), made, "{right}");
        assert_eq!(
            server.run(&format!("SHOW INDEX FROM {name}.delay_message WHERE Key_name LIKE '%doctor%'")),
            ""
        );
    }
    let nothing = user(&server, "little", "SELECT");
    let error = open(&nothing, Options::new(1)).unwrap_err().what;
    assert!(error.contains("does not let this user do what Duly needs"), "{error}");
}

#[test]
fn tables_of_another_engine_are_refused() {
    if !mysql::installed() {
        return;
    }
    let url = mysql::shared().fresh_database();
    drop(open(&url, Options::new(1)).unwrap());
    mysql::shared().run_in(&url, "ALTER TABLE delay_message ENGINE = Aria");
    let found = only(&url);
    assert!(found.weight == Weight::Unfit && found.what.contains("delay_message (Aria)"), "{found:?}");
    let error = open(&url, Options { allow_volatile: true, ..Options::new(2) }).unwrap_err().what;
    assert!(error.contains("ENGINE = InnoDB"), "{error}");
}

#[test]
fn who_is_not_let_in_is_told_why() {
    if !mysql::installed() {
        return;
    }
    let server = mysql::shared();
    let port = server.port();
    refused(&format!("mysql://root@127.0.0.1:{port}/nowhere"), &["no such database", "nowhere", "create it"]);
    server.run("CREATE USER secret@'%' IDENTIFIED BY 'right'");
    refused(
        &format!("mysql://secret:planted@127.0.0.1:{port}/duly"),
        &["does not let this user in", "password"],
    );
}
