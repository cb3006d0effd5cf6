//! The examples, each against a server of its own: they end by themselves, and do what they show.

use std::time::Duration;

use testkit::servers::redis::{self, Redis};

#[expect(dead_code, reason = "its main is for people who run it")]
#[path = "../../examples/orders.rs"]
mod orders;

#[expect(dead_code, reason = "its main is for people who run it")]
#[path = "../../examples/unread_alarms.rs"]
mod unread_alarms;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_orders_cancels_the_order_that_was_not_paid() {
    if !redis::installed() {
        return;
    }
    let redis = Redis::single();
    assert_eq!(orders::orders(&redis.url()).await.unwrap().number, 42);
}

/// What the example takes for a minute: ten of them must be enough for a few calls on a busy machine.
const MINUTE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_alarms_escalates_those_that_nobody_read() {
    if !redis::installed() {
        return;
    }
    let redis = Redis::single();
    let escalated = unread_alarms::unread_alarms(&redis.url(), MINUTE).await.unwrap();
    assert_eq!(escalated, ["disk-full", "odd-noise"]);
}
