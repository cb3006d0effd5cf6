//! D9 and D10: a service from a configuration and attributes.

use std::sync::{
    Arc, LazyLock, Mutex,
    atomic::{AtomicU64, Ordering},
};

use duly_streams::{Entry, Settings, Streams, consumer};
use testkit::servers::redis::{Redis, installed};

use crate::{Order, connect, quick, server::both, wait_until};

static SEEN: LazyLock<Mutex<Vec<(&'static str, String)>>> = LazyLock::new(Mutex::default);

fn see(name: &'static str, what: impl ToString) -> Result<(), String> {
    SEEN.lock().map_err(|_| "a test panicked")?.push((name, what.to_string()));
    Ok(())
}

const TOPIC: &str = "order.placed";

/// Bills an order.
#[consumer(topic = TOPIC, group = "billing", attempts = 2, concurrency = 4)]
async fn bill(order: Entry<Order>) -> Result<(), String> {
    if order.value.number == 3 {
        return Err("no such customer".into());
    }
    see("bill", order.value.number)
}

#[consumer(topic = TOPIC, group = "statistics", batch = 10)]
fn count_orders(orders: Vec<Entry<Order>>) -> Result<(), String> {
    orders.iter().try_for_each(|order| see("count_orders", order.value.number))
}

#[consumer(topic = TOPIC, group = "audit", ordered_by_field = "customer")]
fn audit(order: Entry<Order>) -> Result<(), String> {
    see("audit", order.id)
}

/// The group is that of the settings.
#[consumer(topic = "order.paid")]
async fn ship(orders: Vec<Entry<Order>>) -> Result<(), String> {
    orders.iter().try_for_each(|order| see("ship", order.value.number))
}

#[consumer(topic = TOPIC, group = "state")]
async fn count_in(order: Entry<Order>, sum: Arc<AtomicU64>) -> Result<(), String> {
    sum.fetch_add(order.value.number, Ordering::SeqCst);
    Ok(())
}

#[consumer(topic = TOPIC, group = "state.many", batch = 10)]
fn count_many_in(orders: Vec<Entry<Order>>, sum: Arc<AtomicU64>) -> Result<(), String> {
    sum.fetch_add(orders.iter().map(|order| order.value.number).sum(), Ordering::SeqCst);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_with_state_is_given_it_when_it_starts() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let (one, many) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    streams.start(&[&count_in.with(one.clone()), &count_many_in.with(many.clone())]).await.unwrap();
    for number in [1, 2, 4] {
        streams.send(TOPIC, &Order { number }).await.unwrap();
    }
    wait_until("all are counted", || one.load(Ordering::SeqCst) == 7 && many.load(Ordering::SeqCst) == 7);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_a_configuration_and_functions_with_attributes() {
    for server in both() {
        SEEN.lock().unwrap().clear();
        // D9: connection, group, batch size, block time, retry, trim and dead letters.
        let text = format!(
            r#"{{"url": "{}", "group": "shipping", "batch": 50, "poll_interval": "100ms", "maintenance_interval": "50ms",
                "retry": {{"attempts": 5, "backoff": "fixed", "min": "10ms"}},
                "trim": {{"max_len": 5}}, "dead_letters": {{"max_len": 1000}}}}"#,
            server.url()
        );
        let settings: Settings = serde_json::from_str(&text).unwrap();
        let streams = Streams::open(settings).await.unwrap();
        let listeners = streams.start(&[&bill, &count_orders, &audit, &ship]).await.unwrap();
        assert!(listeners.len() == 4 && listeners.iter().all(duly_streams::Listener::is_running));
        for number in 0..10 {
            streams.send(TOPIC, &Order { number }).await.unwrap();
        }
        streams.send("order.paid", &Order { number: 1 }).await.unwrap();
        let count = |name: &str| SEEN.lock().unwrap().iter().filter(|(seen, _)| *seen == name).count();
        wait_until("all have seen all", || {
            [count("bill"), count("count_orders"), count("audit"), count("ship")] == [9, 10, 10, 1]
        });
        wait_until("one is a dead letter", || server.len(&server.dead(TOPIC)) == 1);
        assert_eq!(server.entries(&server.dead(TOPIC))[0]["duly-dead-attempts"], "2");
        wait_until("the stream is short", || server.len(TOPIC) == 5);
        streams.shutdown().await.unwrap();
        assert!(listeners.iter().all(|listener| !listener.is_running()));
    }
}
