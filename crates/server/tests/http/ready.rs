//! `/readyz` tells the truth: 200 means that a message could be accepted and delivered now.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use duly::{Clock, Duly, ManualClock, Message, Monotonic, Now, Sleep, Store, StoreErrorKind};
use duly_server::{
    auth::{Role, Token, Tokens},
    config::{AlertRules, Config},
    http::{App, AppParts, Front, Listening, listen},
    telemetry::Telemetry,
};
use duly_stores::{EmbeddedStore, MemoryStore, embedded};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::fault::{Call, FailingStore};
use tokio::{net::TcpListener, sync::watch};

use crate::bed::{Answer, call};

/// A clock that panics when it is told to, at every sleep: so does the driver, which sleeps again and again.
#[derive(Clone, Default)]
struct Fragile(ManualClock, Arc<AtomicBool>);

impl Clock for Fragile {
    fn now(&self) -> Now {
        self.0.now()
    }

    fn sleep_until(&self, until: Monotonic) -> Sleep {
        assert!(!self.1.load(SeqCst), "as told");
        self.0.sleep_until(until)
    }
}

/// A server on a store that fails when told, and a clock that stands still.
struct Broken {
    duly: Duly,
    store: Arc<FailingStore>,
    clock: Fragile,
    listening: Listening,
    _stopping: watch::Sender<bool>,
}

impl Broken {
    async fn start(tokens: Tokens) -> Self {
        Self::on(Arc::new(MemoryStore::new()), Fragile::default(), tokens).await
    }

    async fn on(inner: Arc<dyn Store>, clock: Fragile, tokens: Tokens) -> Self {
        let store = FailingStore::new(inner);
        let duly = Duly::builder().store(store.clone()).clock(Arc::new(clock.clone())).start().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listen_at = listener.local_addr().unwrap();
        let config = Config { listen: listen_at, tokens, ..Config::default() };
        let telemetry = Telemetry::start(duly.clone(), AlertRules::default(), Arc::default());
        let (stopping, stopped) = watch::channel(false);
        let parts = AppParts { duly: duly.clone(), sinks: Default::default(), telemetry, stopping: stopped };
        let listening = listen(listener, None, Front::new(App::new(&config, parts)), &config.http).unwrap();
        Self { duly, store, clock, listening, _stopping: stopping }
    }

    async fn ready(&self, token: &str) -> (StatusCode, Value) {
        let bearer = format!("Bearer {token}");
        let headers: &[_] = if token.is_empty() { &[] } else { &[("authorization", bearer.as_str())] };
        let answer: Answer = call(self.listening.addr(), Method::GET, "/readyz", "", headers).await;
        let is_later = answer.headers.contains_key("retry-after");
        assert_eq!(is_later, answer.status == StatusCode::SERVICE_UNAVAILABLE, "503 says when to come again");
        (answer.status, answer.json())
    }

    /// Sends until it is known that nothing can be sent.
    async fn send_in_vain(&self) {
        for _ in 0..3 {
            self.duly.send(Message::to("order")).await.unwrap_err();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_named_and_the_rest_is_ok() {
    let server = Broken::start(Tokens::default()).await;
    let (status, ready) = server.ready("").await;
    let parts = ["accepting", "background", "claiming", "driver", "server", "store"];
    let all_ok: Value = parts
        .into_iter()
        .map(|part| (part.to_owned(), json!("ok")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    assert_eq!((status, &ready["ready"], &ready["parts"]), (StatusCode::OK, &json!(true), &all_ok));

    server.store.fail([Call::Insert], StoreErrorKind::Full);
    server.send_in_vain().await;
    let (status, ready) = server.ready("").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let words = json!("inserts fail: Insert fails as told");
    assert_eq!((&ready["parts"]["accepting"], &ready["parts"]["store"]), (&words, &words));
    for part in ["claiming", "background", "driver", "server"] {
        assert_eq!(ready["parts"][part], "ok", "{ready}");
    }
    server.store.fail([], StoreErrorKind::Full);
    server.duly.send(Message::to("order")).await.unwrap();
    assert_eq!(server.ready("").await.0, StatusCode::OK, "a send that succeeds says that it is over");

    server.store.fail([Call::Claim], StoreErrorKind::Damaged);
    for _ in 0..3 {
        server.duly.receive("order", duly::Receive::default()).await.unwrap_err();
    }
    let (status, ready) = server.ready("").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ready["parts"]["claiming"], "claims of queue/order fail: Claim fails as told");
    assert_eq!(ready["parts"]["accepting"], "ok");
    server.store.fail([], StoreErrorKind::Damaged);
    server.duly.receive("other", duly::Receive::default()).await.unwrap();
    assert_eq!(server.ready("").await.0, StatusCode::SERVICE_UNAVAILABLE, "an empty queue proves nothing");
    // Another queue is received from all the same: the node is of use.
    server.duly.send(Message::to("other")).await.unwrap();
    server.duly.receive("other", duly::Receive::default()).await.unwrap();
    let (status, ready) = server.ready("").await;
    assert_eq!((status, &ready["parts"]["claiming"]), (StatusCode::OK, &json!("ok")));
    assert_eq!(ready["parts"]["degraded"], "claims of queue/order fail: Claim fails as told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_too_many_in_flight_is_told_to_wait_and_the_server_is_ready() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Fragile::default());
    let options = embedded::Options { in_flight_max: 1, ..embedded::Options::small() };
    let store = EmbeddedStore::open(folder.path(), options, clock.now()).await.unwrap();
    let server = Broken::on(Arc::new(store), clock, Tokens::default()).await;
    // However little is free, a queue has a few.
    for sent in server.duly.send_batch((0..100).map(|_| Message::to("order"))).await {
        sent.unwrap();
    }
    let receive =
        || call(server.listening.addr(), Method::POST, "/v1/queues/order/receive", r#"{"max":1000}"#, &[]);
    let first = receive().await;
    assert_eq!(first.status, StatusCode::OK, "{first:?}");
    let held = first.json()["messages"].as_array().unwrap().clone();
    assert!((1..100).contains(&held.len()), "{}", held.len());
    let refused = receive().await;
    assert_eq!(
        (refused.code().as_str(), refused.status),
        ("too_many_in_flight", StatusCode::TOO_MANY_REQUESTS)
    );
    let seconds: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(seconds > 0);
    assert_eq!(server.ready("").await.0, StatusCode::OK, "a limit is no failure");

    let ack = json!({"receipts": [held[0]["receipt"]]}).to_string();
    let acked = call(server.listening.addr(), Method::POST, "/v1/queues/order/ack", ack, &[]).await;
    assert_eq!(acked.status, StatusCode::OK, "{acked:?}");
    let next = receive().await;
    assert_eq!(next.json()["messages"].as_array().unwrap().len(), 1, "{next:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_driver_is_named_and_every_call_says_so() {
    let server = Broken::start(Tokens::default()).await;
    assert_eq!(server.ready("").await.0, StatusCode::OK);
    server.clock.1.store(true, SeqCst);
    server.clock.0.advance(duly::seconds(5));
    server.duly.failed().await;
    server.clock.1.store(false, SeqCst);
    let (status, ready) = server.ready("").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(ready["parts"]["driver"].as_str().unwrap().contains("the driver panicked: as told"), "{ready}");
    let sent = call(server.listening.addr(), Method::POST, "/v1/messages", r#"{"topic":"order"}"#, &[]).await;
    assert_eq!(sent.code(), "delivery_stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_did_not_answer_is_504_and_names_the_id_to_repeat_it_with() {
    let server = Broken::start(Tokens::default()).await;
    server.store.fail([Call::Insert], StoreErrorKind::Unanswered);
    let send = |body: String| {
        let at = server.listening.addr();
        async move { call(at, Method::POST, "/v1/messages", body, &[]).await }
    };
    let answer = send(r#"{"topic":"order","id":"order-42"}"#.into()).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (504, "store_unanswered"));
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("order-42") && detail.contains("with this id"), "{detail}");
    let made = send(r#"{"topic":"order"}"#.into()).await.json()["detail"].as_str().unwrap().to_owned();
    let id = made.split_whitespace().nth(1).unwrap().to_owned();
    server.store.fail([], StoreErrorKind::Unanswered);
    let again = send(format!(r#"{{"topic":"order","id":"{id}"}}"#)).await;
    assert_eq!(again.status.as_u16(), 201, "the id is one that can be given: {made}");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_hear_which_part_fails_and_not_why() {
    let token =
        |name: &str, topics: &[&str]| Token::new(name, &format!("duly_{name}"), &[Role::Read], topics);
    let tokens = Tokens::new(vec![token("whole", &[]), token("some", &["order*"])]);
    let server = Broken::start(tokens).await;
    server.store.fail([Call::Insert], StoreErrorKind::Unavailable);
    server.send_in_vain().await;
    for (token, words) in [
        ("", "failing"),
        ("duly_unknown", "failing"),
        ("duly_some", "failing"),
        ("duly_whole", "inserts fail: Insert fails as told"),
    ] {
        let (status, ready) = server.ready(token).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{token}");
        assert_eq!(ready["parts"]["accepting"], words, "{token}");
        assert_eq!(ready["parts"]["claiming"], "ok", "{token}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_often_it_is_called_the_store_is_asked_once_a_second() {
    let server = Broken::start(Tokens::default()).await;
    assert_eq!(server.ready("").await.0, StatusCode::OK);
    let asked = server.store.health_asked();
    for _ in 0..50 {
        assert_eq!(server.ready("").await.0, StatusCode::OK);
    }
    assert_eq!(server.store.health_asked(), asked, "the clock stands still");
    server.store.fail([Call::Insert], StoreErrorKind::Unavailable);
    server.duly.send(Message::to("order")).await.unwrap_err();
    assert_eq!(server.ready("").await.0, StatusCode::OK, "one failure is an accident");
    assert_eq!(server.store.health_asked(), asked + 1, "a call that failed may be the first to know");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_say_how_it_is_is_not_ready() {
    let server = Broken::start(Tokens::default()).await;
    assert_eq!(server.ready("").await.0, StatusCode::OK);
    server.store.fail([Call::HealthHangs], StoreErrorKind::Unavailable);
    let passing = async {
        loop {
            server.clock.0.advance(duly::millis(100));
            tokio::task::yield_now().await;
        }
    };
    let said = async {
        loop {
            let (status, ready) = server.ready("").await;
            if status != StatusCode::OK {
                return ready;
            }
        }
    };
    let ready = tokio::select! {
        ready = said => ready,
        () = passing => unreachable!("time passes without end"),
    };
    assert!(ready["parts"]["store"].as_str().unwrap().contains("no answer within 5s"), "{ready}");
}
