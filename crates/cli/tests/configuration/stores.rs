//! `[store]`: each kind with its own settings.

use std::{net::TcpListener, time::Duration};

use duly_server::config::Loaded;
use duly_stores::{SqlServer, StoreConfig};

use crate::{
    Folder,
    commands::{duly, json},
    load::load,
};

#[test]
fn a_database_is_named_by_its_address_alone() {
    for (file, server, url) in [
        ("[store]\nkind = \"mysql\"", SqlServer::Mysql, "mysql://duly@127.0.0.1:3306/duly"),
        ("[store]\nkind = \"mysql\"\nmysql = \"mariadb://u@h/d\"", SqlServer::Mysql, "mariadb://u@h/d"),
        ("[store]\nkind = \"postgres\"", SqlServer::Postgres, "postgres://duly@127.0.0.1:5432/duly"),
    ] {
        let store = load(file, &[]).unwrap_or_else(|problems| panic!("{problems}")).store;
        assert_eq!((store.retention, store.retention_max), (Duration::from_secs(86_400), 1_000_000));
        let StoreConfig::Sql(setup) = store.config else { panic!("{:?}", store.config) };
        assert_eq!((setup.server, setup.url.reveal()), (server, url));
        assert_eq!((setup.shards, setup.connections), (16, 16));
    }
}

#[test]
fn the_address_of_a_database_may_come_from_a_file_and_shows_no_password() {
    let folder = Folder::new();
    let secret = folder.write("secret", "postgres://duly:planted@db.example/duly\n");
    let file = "[store]\nkind = \"postgres\"\nconnections = 4\nshards = 8\nlease = \"3s\"\nretention = \"1h\"\nretention_max = 5";
    let variables = [("DULY__STORE__POSTGRES_FILE", secret.to_str().unwrap())];
    let loaded =
        Loaded::read(&folder.sources(file, &variables)).unwrap_or_else(|problems| panic!("{problems}"));
    let StoreConfig::Sql(setup) = &loaded.config.store.config else { panic!("{:?}", loaded.config.store) };
    assert_eq!(setup.url.reveal(), "postgres://duly:planted@db.example/duly");
    assert_eq!((setup.connections, setup.shards), (4, 8));
    assert_eq!(setup.shown(), "postgres://duly:***@db.example/duly");
    assert_eq!((loaded.config.store.lease, loaded.config.store.retention_max), (Duration::from_secs(3), 5));
    let shown = format!("{loaded:?} {}", serde_json::to_string(&loaded.settings).unwrap());
    assert!(!shown.contains("planted"), "{shown}");
}

#[test]
fn redis_and_mysql_has_the_settings_of_both_halves() {
    let file = "[store]\nkind = \"redis+mysql\"\nredis = \"redis://:planted@r\"\nmysql = \"mysql://u:planted@h/d\"\nhorizon = \"2h\"\nconnections = 3";
    let store = load(file, &[]).unwrap_or_else(|problems| panic!("{problems}")).store;
    assert_eq!((store.retention, store.retention_max), (Duration::from_secs(86_400), 1_000_000));
    let StoreConfig::RedisAndMysql(setup) = store.config else { panic!("{:?}", store.config) };
    assert_eq!(
        (setup.redis.reveal(), setup.mysql.url.reveal()),
        ("redis://:planted@r", "mysql://u:planted@h/d")
    );
    assert_eq!(
        (setup.horizon, setup.index_max, setup.mysql.connections),
        (Duration::from_secs(7200), 1_000_000, 3)
    );
    assert_eq!(setup.shown(), "mysql://u:***@h/d, with its index in Redis at redis://:***@r");
}

/// What a new store is added to beside its own crate: neither command has a `match` that the compiler checks.
#[test]
fn config_check_and_the_doctor_know_every_kind_of_store() {
    for kind in StoreConfig::KINDS {
        let folder = Folder::new();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // Nobody listens there: a server that runs here is not looked at.
        let server = |name: &str| match name {
            "embedded" => String::new(),
            "redis" => format!("redis = \"redis://{}\"\n", free()),
            name => format!("{name} = \"{name}://duly@{}/duly\"\n", free()),
        };
        let servers: String = kind.split('+').map(server).collect();
        folder.write("duly.toml", &format!("listen = \"{}\"\n[store]\nkind = {kind:?}\n{servers}", free()));

        let checked = json(&duly(&folder, &["config", "check", "-o", "json"]));
        let settings = checked["settings"].as_array().unwrap_or_else(|| panic!("{kind}: {checked}"));
        let is_kind =
            |setting: &serde_json::Value| setting["path"] == "store.kind" && setting["value"] == kind;
        assert!(settings.iter().any(is_kind), "{kind}: {checked}");

        let report = json(&duly(&folder, &["doctor", "-o", "json"]));
        let findings = report["findings"].as_array().unwrap_or_else(|| panic!("{kind}: {report}"));
        let has = |check: &str| findings.iter().any(|finding| finding["check"] == check);
        assert!(!has("store"), "{kind}: the doctor does not know it: {report}");
        for part in kind.split('+') {
            let check = if part == "embedded" { "data folder" } else { part };
            assert!(has(check), "{kind}: nothing is said of {check}: {report}");
        }
    }
}
