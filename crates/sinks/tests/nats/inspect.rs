//! What `doctor` is told.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::stream::Config;
use duly::SystemClock;
use testkit::servers::nats::{Nats, installed};

use crate::{configured, stream};

#[tokio::test]
async fn a_duplicate_window_that_is_shorter_than_the_retries_is_named() {
    if !installed() {
        return;
    }
    let nats = Nats::single();
    stream(&nats.url(), Config { duplicate_window: Duration::from_secs(180), ..Config::default() }).await;
    let inspect = async |again| {
        let clock = Arc::new(SystemClock::new().unwrap());
        configured(&nats.url(), "").inspect(clock, Duration::from_secs(again), &[]).await
    };
    assert_eq!(inspect(170).await, []);
    let remarks = inspect(300).await;
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].detail.contains("ORDERS") && remarks[0].detail.contains("180s"), "{remarks:?}");
    assert!(remarks[0].remedy.contains("--dupe-window=300s"), "{remarks:?}");
}
