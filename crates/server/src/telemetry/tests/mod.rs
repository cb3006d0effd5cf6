//! A whole telemetry on a store in memory and a clock that stands still until it is moved.

mod contrib;
mod exposition;
mod store_failure;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use duly::{
    Clock, Delivery, ManualClock, Message, Outcomes, Receive, Sink, SinkError, SinkOptions, Store, seconds,
};
use duly_stores::MemoryStore;

use self::exposition::Page;
use super::*;
use crate::config::Thresholds;

struct Bench {
    duly: Duly,
    clock: ManualClock,
    telemetry: Arc<Telemetry>,
}

/// Takes everything.
struct Target;

impl Target {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        batch.iter().map(|_| Ok("taken".into())).collect()
    }
}

#[async_trait]
impl Sink for Target {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }
    async fn probe(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

fn rules() -> AlertRules {
    let all = Thresholds { overdue: Some(seconds(10)), ..Thresholds::default() };
    let topics = BTreeMap::from([("vip".to_owned(), Thresholds::default())]);
    AlertRules { all, topics, ..AlertRules::default() }
}

impl Bench {
    async fn start() -> Self {
        Self::on(Arc::new(MemoryStore::new())).await
    }

    async fn on(store: Arc<MemoryStore>) -> Self {
        Self::with(store, rules()).await
    }

    async fn with(store: Arc<dyn Store>, rules: AlertRules) -> Self {
        let clock = ManualClock::new();
        let builder = Duly::builder().store(store).clock(Arc::new(clock.clone())).watch_topics(["vip"]);
        let duly = builder.sink("orders", Arc::new(Target), SinkOptions::default()).start().await.unwrap();
        let telemetry = Telemetry::start(duly.clone(), rules, Arc::default());
        let bench = Self { duly, clock, telemetry };
        bench.calm().await;
        bench
    }

    /// Lets everything happen that can happen without time passing.
    async fn calm(&self) {
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
    }

    async fn pass(&self, span: Duration) {
        let end = self.clock.now().mono().saturating_add(span);
        self.calm().await;
        while let Some(next) = self.clock.next_deadline().filter(|next| *next <= end) {
            self.clock.advance_to(next);
            self.calm().await;
        }
        self.clock.advance_to(end);
        self.calm().await;
    }

    async fn page(&self) -> Page {
        let text = self.telemetry.render().await;
        Page::read(&text).unwrap_or_else(|wrong| panic!("{wrong}\n\n{text}"))
    }
}

#[tokio::test]
async fn what_happened_is_exported() {
    let bench = Bench::start().await;
    bench.duly.send(Message::to("orders/paid").id("a")).await.unwrap();
    bench.duly.send(Message::to("orders/paid").id("a")).await.unwrap();
    bench.duly.send(Message::to("a \"quoted\\ one")).await.unwrap();
    bench.pass(seconds(5)).await;
    let received = bench.duly.receive("a \"quoted\\ one", Receive::default()).await.unwrap();
    bench.telemetry.dropped_events(3);
    let page = bench.page().await;
    assert_eq!(page.get("duly_messages_submitted_total", &[("outcome", "accepted")]), 2.0);
    assert_eq!(page.get("duly_messages_submitted_total", &[("outcome", "duplicate")]), 1.0);
    assert_eq!(page.get("duly_attempts_total", &[("sink", "orders"), ("outcome", "delivered")]), 1.0);
    let queue = [("sink", "queue"), ("topic", "a \"quoted\\ one")];
    assert_eq!(page.get("duly_in_flight", &queue), received.len() as f64);
    assert_eq!(page.get("duly_lateness_seconds_count", &[("sink", "queue")]), 1.0);
    assert_eq!(page.get("duly_lateness_seconds_sum", &[("sink", "queue")]), 5.0);
    assert_eq!(page.get("duly_sink_call_seconds_count", &[("sink", "orders")]), 1.0);
    assert_eq!(page.get("duly_sink_up", &[("sink", "orders")]), 1.0);
    assert_eq!(page.get("duly_store_accepted", &[]), 2.0);
    assert_eq!(page.get("duly_ledger_balanced", &[]), 1.0);
    assert_eq!(page.get("duly_events_dropped_total", &[]), 3.0);
    assert_eq!(page.get("duly_uptime_seconds", &[]), 5.0);
    assert_eq!(page.get("duly_topic_attempts_total", &[("topic", "vip"), ("outcome", "delivered")]), 0.0);
}

#[tokio::test]
async fn thousands_of_topics_make_a_bounded_page_and_counters_never_go_back() {
    let bench = Bench::start().await;
    bench.duly.send(Message::to("other")).await.unwrap();
    for number in 0..5_000 {
        bench.duly.send(Message::to(format!("topic-{number}"))).await.unwrap();
    }
    let before = bench.page().await;
    let topics = |page: &Page| page.of("duly_pending").count();
    assert!(topics(&before) <= TopicLabels::MAX + 3, "{}", topics(&before));
    assert!(before.samples.len() < 3_000, "{}", before.samples.len());
    let pending: f64 = before.of("duly_pending").map(|sample| sample.value).sum();
    assert_eq!(pending, 5_001.0, "what has no name is counted all the same");

    // Topics that sort before all others come later: nobody loses a name to them.
    bench.duly.send(Message::to("aaa")).await.unwrap();
    let all = (0..5_000).map(|number| format!("topic-{number}"));
    for topic in all.step_by(50).chain(["aaa".into(), "vip".into()]) {
        for received in bench.duly.receive(&topic, Receive::default()).await.unwrap() {
            bench.duly.ack(&[received.receipt]).await.unwrap();
        }
    }
    let after = bench.page().await;
    let names = |page: &Page| -> std::collections::BTreeSet<_> {
        page.of("duly_attempts_total").map(|sample| sample.labels.clone()).collect()
    };
    assert!(names(&before).is_subset(&names(&after)));
    let delivered: f64 = after.of("duly_attempts_total").map(|sample| sample.value).sum();
    assert_eq!(delivered, 101.0);
}

#[tokio::test]
async fn an_alert_is_told_shown_and_cleared() {
    let bench = Bench::start().await;
    let mut reported = bench.telemetry.listen();
    bench.duly.send(Message::to("order").id("late")).await.unwrap();
    bench.pass(seconds(9)).await;
    assert_eq!(bench.telemetry.alerts().len(), 0);
    bench.pass(seconds(3)).await;
    let alert = reported.try_recv().unwrap();
    assert_eq!((alert.name.as_str(), alert.state), ("overdue", AlertState::Raised));
    assert_eq!(bench.telemetry.alerts().len(), 1);
    assert_eq!(bench.page().await.get("duly_alert", &[("name", "overdue")]), 1.0);
    bench.duly.cancel("late").await.unwrap();
    bench.pass(CALM + seconds(4)).await;
    assert_eq!(reported.try_recv().unwrap().state, AlertState::Cleared);
    assert_eq!(bench.telemetry.alerts().len(), 0);
    assert_eq!(bench.page().await.get("duly_alert", &[("name", "overdue")]), 0.0);
}

#[tokio::test]
async fn a_sink_that_left_the_configuration_is_an_orphan() {
    let store = Arc::new(MemoryStore::new());
    let before = Duly::builder().store(store.clone()).clock(Arc::new(ManualClock::new())).deliver(false);
    let before = before.sink("gone", Arc::new(Target), SinkOptions::default()).start().await.unwrap();
    before.send(Message::to("gone/paid")).await.unwrap();
    let bench = Bench::on(store).await;
    let alerts = bench.telemetry.alerts();
    assert_eq!(
        alerts.iter().map(|a| (a.name.as_str(), a.scope.as_deref())).collect::<Vec<_>>(),
        [("orphan", Some("gone"))]
    );
    let page = bench.page().await;
    assert_eq!(page.get("duly_alert", &[("name", "orphan")]), 1.0);
    assert_eq!(page.get("duly_pending", &[("sink", "other")]), 1.0);
}

#[tokio::test]
async fn rates_follow_what_is_sent() {
    let bench = Bench::start().await;
    bench.pass(seconds(20)).await;
    bench.duly.send_batch((0..50).map(|_| Message::to("orders/paid"))).await;
    bench.pass(seconds(2)).await;
    let rates = bench.telemetry.rates();
    assert_eq!((rates.accepted, rates.delivered, rates.delivered_by_sink["orders"]), (5.0, 5.0, 5.0));
    bench.pass(seconds(20)).await;
    assert_eq!(bench.telemetry.rates().accepted, 0.0);
}

#[tokio::test]
async fn it_ends_with_the_server() {
    let bench = Bench::start().await;
    let weak = Arc::downgrade(&bench.telemetry);
    let Bench { duly, clock, telemetry } = bench;
    drop(telemetry);
    assert!(weak.upgrade().is_none(), "nothing in the background keeps it");
    drop(duly);
    clock.advance(seconds(3));
}

#[tokio::test]
async fn an_alert_is_posted_to_the_webhook() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?key=1", listener.local_addr().unwrap());
    let bench = Bench::with(Arc::new(MemoryStore::new()), AlertRules { webhook: Some(url), ..rules() }).await;
    bench.duly.send(Message::to("order")).await.unwrap();
    bench.pass(seconds(12)).await;
    assert_eq!(bench.telemetry.alerts().len(), 1);
    let (mut call, _) = listener.accept().await.unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"}") {
        assert_ne!(call.read_buf(&mut asked).await.unwrap(), 0, "{}", String::from_utf8_lossy(&asked));
    }
    call.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let asked = String::from_utf8(asked).unwrap();
    assert!(asked.starts_with("POST /hook?key=1 HTTP/1.1"), "{asked}");
    let (_, body) = asked.split_once("\r\n\r\n").unwrap();
    let alert: Alert = serde_json::from_str(body).unwrap();
    assert_eq!((alert.name.as_str(), alert.state), ("overdue", AlertState::Raised));
}
