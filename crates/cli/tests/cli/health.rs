//! `duly health`: what a container's health check and a script that waits for a start run.

use std::fs;

use duly_server::config::{Secret, StoreSetup};
use duly_stores::{StoreConfig, redis::RedisConfig};
use serde_json::Value;
use testkit::servers::redis::{self, Redis};

use super::{Server, duly, run, serve::Process};

#[test]
fn a_server_that_works_is_ready_and_live() {
    let server = Server::start();
    let ready: Value = server.json(&["health"]);
    assert_eq!((&ready["ready"], &ready["parts"]["accepting"]), (&Value::Bool(true), &"ok".into()));
    let words = server.ok(&["health"]);
    assert!(words.contains("accepting") && words.contains("\nready, durability: disk"), "{words}");
    assert_eq!(server.ok(&["health", "--live"]), "live\n");
}

#[test]
fn a_server_that_cannot_accept_is_not_ready_and_live_all_the_same() {
    if !redis::installed() {
        return;
    }
    let store = Redis::single();
    let server = Server::with(|config| {
        let setup = RedisConfig { url: Secret::new(store.url()), ..RedisConfig::default() };
        config.store = StoreSetup::of(StoreConfig::Redis(setup));
    });
    server.ok(&["health"]);
    store.kill();
    // A call that fails is how the server learns of it at once.
    assert_ne!(server.run(&["send", "order", "x"]).code, 0);
    let run = server.run(&["health"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.starts_with("error: the server is not ready: accepting: "), "{run:?}");
    assert!(run.out.contains("not ready"), "{run:?}");
    assert_eq!(server.run(&["health", "--live"]).code, 0);
}

#[test]
fn it_needs_no_token_and_an_absent_server_is_5() {
    let folder = tempfile::tempdir().unwrap();
    let made = run(duly().args(["token", "--name", "me", "--role", "admin"]), b"");
    let (_, config) = made.out.split_once("\n\n").unwrap();
    fs::write(folder.path().join("duly.toml"), config).unwrap();
    let server = Process::start(folder.path(), "127.0.0.1:0");
    for args in [&["health", "--quiet"][..], &["health", "--live"]] {
        let answered = run(duly().env("DULY_URL", &server.url).args(args), b"");
        assert_eq!(answered.code, 0, "{answered:?}");
    }
    let url = server.url.clone();
    drop(server);
    for args in [&["health"][..], &["health", "--live"]] {
        assert_eq!(run(duly().env("DULY_URL", &url).args(args), b"").code, 5, "{args:?}");
    }
}
