//! A broker that takes the connection and falls silent: before the login, or after it.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Limits, ManualClock};
use duly_stores::MemoryStore;
use testkit::servers::rabbitmq::{SilentEvent, silent_broker};
use tokio::sync::watch;

use super::{Destination, RabbitmqSource};
use crate::{
    auth::Tokens,
    config::{Secret, SourceSetup},
    http::Topics,
};

/// What does not happen within this does not happen at all.
const SOON: Duration = Duration::from_secs(60);
/// Small beside the time that the source gives the broker.
const STEP: Duration = Duration::from_millis(20);

async fn given_up_and_tried_again(logs_in: bool) {
    let (port, mut happened) = silent_broker(logs_in).await;
    let clock = Arc::new(ManualClock::new());
    let store = Arc::new(MemoryStore::new());
    let duly = Duly::builder().store(store).clock(clock.clone()).start().await.unwrap();
    let setup = SourceSetup {
        url: Secret::new(format!("amqp://guest:guest@127.0.0.1:{port}")),
        queue: "delayed".into(),
        sink: "queue".parse().unwrap(),
        topic: "{routing_key}".into(),
        prefetch: 100,
        dead_letter_exchange: None,
        ca: None,
        client_cert: None,
        client_key: None,
    };
    let destination =
        Destination { duly: duly.clone(), topics: Arc::new(Topics::new(10, &Tokens::default())) };
    let source = RabbitmqSource::new("rabbit", &setup, &Limits::default(), destination, clock.clone());
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(source.run(stopping));
    let tried = async {
        let (mut silences, mut passes) = (0, false);
        while silences < 3 {
            // Time stands still while the two talk.
            let event = if passes { happened.try_recv().ok() } else { happened.recv().await };
            match event {
                Some(SilentEvent::Accepted) => passes = false,
                Some(SilentEvent::Silent) => (silences, passes) = (silences + 1, true),
                Some(SilentEvent::Closed) => passes = true,
                None => {
                    clock.advance(STEP);
                    tokio::task::yield_now().await;
                }
            }
        }
    };
    tokio::time::timeout(SOON, tried).await.expect("a silent broker is given up and tried again");
    stop.send_replace(true);
    tokio::time::timeout(SOON, running).await.expect("it stops while the broker is silent").unwrap();
    duly.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_broker_that_is_silent_before_the_login_is_given_up_and_tried_again() {
    given_up_and_tried_again(false).await;
}

#[tokio::test]
async fn a_broker_that_is_silent_after_the_login_is_given_up_and_tried_again() {
    given_up_and_tried_again(true).await;
}
