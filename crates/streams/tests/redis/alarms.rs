//! Alarms that are escalated unless somebody reads them in time: named levels, a check later, taken back when it is read.

use std::{collections::BTreeMap, time::Duration};

use duly_streams::{Cancelled, ExpiredTimer, Settings, Streams};
use serde::{Deserialize, Serialize};
use testkit::servers::redis::{Redis, installed};
use tokio::sync::mpsc;

use crate::{connect, next};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Alarm {
    id: u64,
    level: String,
}

/// Five, ten and twenty minutes, of 60 ms each.
fn wait(level: &str) -> Duration {
    Duration::from_millis(60) * BTreeMap::from([("P0", 5), ("P1", 10)]).get(level).copied().unwrap_or(20)
}

async fn raise(streams: &Streams, id: u64, level: &str) {
    let alarm = Alarm { id, level: level.into() };
    let timers = streams.expiry_timers("alarm:").unwrap();
    timers.set(&format!("alarm:{id}"), &alarm, wait(level)).await.unwrap();
}

/// Looks again whether it was read, and escalates only if not.
async fn escalate(streams: &Streams, redis: &Redis) -> mpsc::UnboundedReceiver<(u64, u64, String)> {
    let (escalated, escalating) = mpsc::unbounded_channel();
    let state = redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let check = move |expired: ExpiredTimer<Alarm>| {
        let (escalated, mut state) = (escalated.clone(), state.clone());
        async move {
            let Alarm { id, level } = expired.value;
            let read: bool = redis::cmd("SISMEMBER").arg("read").arg(id).query_async(&mut state).await?;
            if !read {
                let _ = escalated.send((expired.due_ms, id, level));
            }
            Ok::<_, redis::RedisError>(())
        }
    };
    streams.expiry_timers("alarm:").unwrap().listener(check).start().await.unwrap();
    escalating
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_that_nobody_reads_is_escalated_at_the_time_of_its_level_and_one_that_was_read_is_not() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (one, other) =
        (connect(&redis, Settings::default()).await, connect(&redis, Settings::default()).await);
    let (mut first, mut second) = (escalate(&one, &redis).await, escalate(&other, &redis).await);
    for (id, level) in [(1, "other"), (2, "P1"), (3, "P0"), (4, "P0"), (5, "P1")] {
        raise(&one, id, level).await;
    }
    // The usual way: it is read, and the check is taken back.
    let timers = other.expiry_timers("alarm:").unwrap();
    assert_eq!(timers.cancel("alarm:4").await.unwrap(), Cancelled::Done { attempts: 0 });
    // It is read, and whoever read it died before it could take the check back: the check looks again.
    redis.run::<()>(&["SADD", "read", "5"]);
    let mut escalated = Vec::new();
    for _ in 0..3 {
        escalated.push(tokio::select! { one = next(&mut first) => one, other = next(&mut second) => other });
    }
    escalated.sort();
    let in_order: Vec<_> = escalated.iter().map(|(_, id, level)| (*id, level.as_str())).collect();
    assert_eq!(in_order, [(3, "P0"), (2, "P1"), (1, "other")], "each at the time of its level");
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
    assert!(first.recv().await.is_none() && second.recv().await.is_none(), "no other");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_whose_time_came_while_no_process_ran_is_escalated_at_the_next_start() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    raise(&streams, 1, "P0").await;
    let timers = streams.expiry_timers("alarm:").unwrap();
    while !timers.get::<Alarm>("alarm:1").await.unwrap().unwrap().remaining.is_zero() {}
    streams.shutdown().await.unwrap();
    let streams = connect(&redis, Settings::default()).await;
    let mut escalating = escalate(&streams, &redis).await;
    assert_eq!(next(&mut escalating).await.1, 1);
    streams.shutdown().await.unwrap();
}
