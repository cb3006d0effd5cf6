//! A store that fails: told by an alert, by the metrics, and to a webhook that needs several attempts.

use duly::{StoreError, StoreErrorKind, millis};
use testkit::{
    disk::PowerDisk,
    fault::{Call, FailingStore},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

fn on(bench: &Bench) -> Vec<String> {
    bench.telemetry.alerts().into_iter().map(|alert| alert.name).collect()
}

/// What the metrics say: is it ready, is the store up.
async fn up(bench: &Bench) -> (f64, f64) {
    let page = bench.page().await;
    (page.get("duly_node_ready", &[]), page.get("duly_store_up", &[]))
}

#[tokio::test]
async fn claims_that_fail_raise_an_alert_and_take_the_store_down_until_they_succeed() {
    let store = FailingStore::new(Arc::new(MemoryStore::new()));
    let bench = Bench::with(store.clone(), rules()).await;
    assert_eq!((on(&bench), up(&bench).await), (vec![], (1.0, 1.0)));
    store.fail([Call::Claim], StoreErrorKind::Damaged);
    bench.duly.send(Message::to("orders/paid")).await.unwrap();
    bench.pass(seconds(4)).await;
    assert_eq!((on(&bench), up(&bench).await), (vec!["not_ready".to_owned()], (0.0, 0.0)));
    let detail = bench.telemetry.alerts().remove(0).detail;
    assert!(detail.contains("claiming: claims of orders fail: Claim fails as told"), "{detail}");
    assert_eq!(bench.page().await.get("duly_alert", &[("name", "not_ready")]), 1.0);
    store.fail([], StoreErrorKind::Damaged);
    bench.pass(seconds(6)).await;
    assert_eq!(up(&bench).await, (1.0, 1.0), "the next claim succeeds");
    bench.pass(CALM).await;
    assert_eq!(on(&bench), [""; 0]);
}

#[tokio::test]
async fn each_kind_of_call_that_fails_is_told_with_its_part() {
    for (call, part) in [
        (Call::Looks, "accepting: Looks fails"),
        (Call::Settle, "claiming: settles fail"),
        (Call::Sweep, "claiming: sweeps fail"),
        // Nobody sends afterwards: the failures are forgotten after a while.
        (Call::Insert, "accepting: inserts fail"),
    ] {
        let store = FailingStore::new(Arc::new(MemoryStore::new()));
        let bench = Bench::with(store.clone(), rules()).await;
        bench.duly.send(Message::to("orders/paid").after(seconds(1))).await.unwrap();
        store.fail([call], StoreErrorKind::Unavailable);
        for _ in 0..3 {
            let _ = bench.duly.send(Message::to("orders/paid")).await;
        }
        bench.pass(seconds(6)).await;
        assert_eq!(on(&bench), ["not_ready"], "{call:?}");
        let detail = bench.telemetry.alerts().remove(0).detail;
        assert!(detail.contains(part), "{call:?}: {detail}");
        assert_eq!(up(&bench).await, (0.0, 0.0), "{call:?}");
        store.fail([], StoreErrorKind::Unavailable);
        bench.pass(seconds(40)).await;
        assert_eq!(up(&bench).await, (1.0, 1.0), "{call:?}");
    }
}

#[tokio::test]
async fn an_insert_that_is_never_answered_takes_the_node_down_until_it_is() {
    let store = FailingStore::new(Arc::new(MemoryStore::new()));
    let bench = Bench::with(store.clone(), rules()).await;
    store.fail([Call::InsertsWait], StoreErrorKind::Unavailable);
    let duly = bench.duly.clone();
    let sent = tokio::spawn(async move { duly.send(Message::to("orders/paid")).await });
    bench.pass(seconds(9)).await;
    assert_eq!(up(&bench).await, (1.0, 1.0), "it is only slow");
    bench.pass(seconds(3)).await;
    let error = bench.duly.health().await.accepting.unwrap_err();
    assert!(error.what.contains("has not answered an insert for more than 10s"), "{error}");
    assert_eq!(up(&bench).await, (0.0, 0.0));
    store.fail([], StoreErrorKind::Unavailable);
    sent.await.unwrap().unwrap();
    bench.pass(seconds(1)).await;
    assert_eq!(up(&bench).await, (1.0, 1.0));
}

fn degraded(refuses_some: bool) -> duly_core::store::Health {
    let mut health = duly_core::store::Health::healthy();
    health.degraded = Some(StoreError::new(StoreErrorKind::Damaged, "1 of 16 shards fail (3)"));
    health.refuses_some = refuses_some;
    health
}

#[tokio::test]
async fn inserts_that_fail_for_a_part_of_the_store_leave_the_node_ready_and_degraded() {
    let store = FailingStore::new(Arc::new(MemoryStore::new()));
    let bench = Bench::with(store.clone(), rules()).await;
    store.report(degraded(true));
    store.fail([Call::Insert], StoreErrorKind::Unavailable);
    for _ in 0..3 {
        bench.duly.send(Message::to("orders/paid")).await.unwrap_err();
    }
    bench.pass(seconds(4)).await;
    assert_eq!((on(&bench), up(&bench).await), (vec!["degraded".to_owned()], (1.0, 1.0)));
    assert_eq!(bench.page().await.get("duly_store_degraded", &[]), 1.0);
    store.report(degraded(false));
    bench.pass(seconds(3)).await;
    assert_eq!(up(&bench).await, (0.0, 0.0), "an unread table refuses no insert");
    store.report(duly_core::store::Health::healthy());
    bench.pass(seconds(3)).await;
    assert_eq!(up(&bench).await, (0.0, 0.0), "of a store that knows of no part, they are of the whole");
}

#[tokio::test]
async fn an_insert_that_is_never_answered_takes_a_degraded_node_down_too() {
    let store = FailingStore::new(Arc::new(MemoryStore::new()));
    let bench = Bench::with(store.clone(), rules()).await;
    store.report(degraded(true));
    store.fail([Call::InsertsWait], StoreErrorKind::Unavailable);
    let duly = bench.duly.clone();
    let sent = tokio::spawn(async move { duly.send(Message::to("orders/paid")).await });
    bench.pass(seconds(12)).await;
    assert_eq!(up(&bench).await, (0.0, 0.0));
    store.fail([], StoreErrorKind::Unavailable);
    sent.await.unwrap().unwrap();
    bench.pass(seconds(1)).await;
    assert_eq!(up(&bench).await, (1.0, 1.0));
}

#[tokio::test]
async fn more_pending_than_allowed_is_a_limit_and_no_failure() {
    let store = FailingStore::new(Arc::new(MemoryStore::new()));
    let bench = Bench::with(store.clone(), rules()).await;
    store.fail([Call::Insert], StoreErrorKind::TooMany);
    for _ in 0..10 {
        assert!(bench.duly.send(Message::to("orders/paid")).await.is_err());
    }
    bench.pass(seconds(4)).await;
    assert_eq!((on(&bench), up(&bench).await), (vec![], (1.0, 1.0)));
}

#[tokio::test]
async fn a_full_disk_is_told_and_over_once_there_is_room() {
    let (disk, clock) = (PowerDisk::default(), ManualClock::new());
    let options = duly_stores::embedded::Options {
        segment_bytes: 32 << 10,
        disk: Arc::new(disk.clone()),
        ..duly_stores::embedded::Options::small()
    };
    let store = duly_stores::EmbeddedStore::open("/data", options, clock.now()).await.unwrap();
    let duly = Duly::builder().store(Arc::new(store)).clock(Arc::new(clock.clone())).start().await.unwrap();
    let bench = Bench { telemetry: Telemetry::start(duly.clone(), rules(), Arc::default()), duly, clock };
    assert_eq!(up(&bench).await, (1.0, 1.0));
    disk.set_room(Some(disk.used() + (64 << 10)));
    let message = || Message::to("later").text("abcdefgh".repeat(400)).after(seconds(36_000));
    while bench.duly.send(message()).await.is_ok() {}
    // The answer of a moment ago counts no more: a call has failed since.
    let health = bench.duly.health().await;
    assert_eq!(health.accepting.unwrap_err().kind, StoreErrorKind::Full);
    assert_eq!((health.claiming, health.background, health.driver), (Ok(()), Ok(()), Ok(())));
    assert_eq!(up(&bench).await, (0.0, 0.0));
    assert_eq!(bench.page().await.get("duly_store_full", &[]), 1.0);
    while on(&bench).is_empty() {
        bench.pass(seconds(1)).await;
    }
    assert_eq!(on(&bench), ["not_ready"]);
    disk.set_room(None);
    while !bench.duly.health().await.is_ready() {
        bench.pass(seconds(1)).await;
    }
    bench.duly.send(message()).await.unwrap();
}

#[tokio::test]
async fn a_dead_letter_raises_an_alert_until_it_is_purged() {
    let all = Thresholds { dead_letters: Some(0), ..Thresholds::default() };
    let bench = Bench::with(Arc::new(MemoryStore::new()), AlertRules { all, ..AlertRules::default() }).await;
    let id = bench.duly.send(Message::to("order").max_lateness(seconds(1))).await.unwrap().id;
    bench.pass(seconds(3)).await;
    assert!(bench.duly.receive("order", Receive::default()).await.unwrap().is_empty(), "it has expired");
    bench.pass(seconds(2)).await;
    assert_eq!(on(&bench), ["dead_letters"]);
    assert_eq!(bench.page().await.get("duly_alert", &[("name", "dead_letters")]), 1.0);
    bench.duly.purge(&[id]).await.unwrap();
    bench.pass(CALM + seconds(4)).await;
    assert_eq!(on(&bench), [""; 0]);
}

/// Lets time pass until a post comes, answers it with `status`, and gives its id and its body.
async fn take_post(bench: &Bench, listener: &TcpListener, status: &str) -> (String, Alert) {
    let passing = async {
        loop {
            // In steps far shorter than a post may take: the network does not go by this clock.
            bench.pass(millis(100)).await;
        }
    };
    let (mut call, _) = tokio::select! {
        called = listener.accept() => called.unwrap(),
        () = passing => unreachable!("time passes without end"),
    };
    let mut asked = Vec::new();
    while !asked.ends_with(b"}") {
        assert_ne!(call.read_buf(&mut asked).await.unwrap(), 0, "{}", String::from_utf8_lossy(&asked));
    }
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    call.write_all(answer.as_bytes()).await.unwrap();
    let asked = String::from_utf8(asked).unwrap();
    let (head, body) = asked.split_once("\r\n\r\n").unwrap();
    let id = head.lines().find_map(|line| line.strip_prefix("webhook-id: ")).unwrap();
    (id.to_owned(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn an_alert_that_nobody_took_is_posted_again_and_the_next_ones_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let store = FailingStore::new(Arc::new(MemoryStore::new()));
    let bench = Bench::with(store.clone(), AlertRules { webhook: Some(url), ..rules() }).await;
    store.fail([Call::Looks], StoreErrorKind::Unavailable);
    bench.pass(seconds(4)).await;
    assert_eq!(on(&bench), ["not_ready"]);
    let mut ids = std::collections::BTreeSet::new();
    for status in ["500 No", "503 Not now", "429 Slower", "200 OK"] {
        let (id, alert) = take_post(&bench, &listener, status).await;
        assert_eq!((alert.name.as_str(), alert.state), ("not_ready", AlertState::Raised), "{status}");
        ids.insert(id);
    }
    assert_eq!(ids.len(), 1, "the same alert by the same id: {ids:?}");
    store.fail([], StoreErrorKind::Unavailable);
    let (id, alert) = take_post(&bench, &listener, "200 OK").await;
    assert_eq!((alert.name.as_str(), alert.state), ("not_ready", AlertState::Cleared));
    assert!(!ids.contains(&id));
}
