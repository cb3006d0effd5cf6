//! The lease of the leader of an ordered listener.

use std::{sync::Arc, time::Duration};

use duly_streams::{Entry, Listener, Message, Settings, Streams};
use testkit::{
    logs::Logs,
    servers::{
        self,
        proxy::Proxy,
        redis::{Redis, installed},
    },
};
use tokio::sync::{Semaphore, mpsc};

use crate::{Order, SOON, connect, next, pending, quick, script};

const LEADER: &str = "{order}:duly-streams:leader:duly-streams";

/// A listener whose handlers say which entry they begin, and wait for a permit of the gate.
async fn listen(streams: &Streams, name: &'static str, gate: &Arc<Semaphore>, begun: &Begun) -> Listener {
    let (gate, begun) = (gate.clone(), begun.clone());
    let handler = move |order: Entry<Order>| {
        let (gate, begun) = (gate.clone(), begun.clone());
        async move {
            begun.send((name, order.value.number)).map_err(|_| "nobody listens")?;
            gate.acquire().await.map(|permit| permit.forget()).map_err(|_| "closed")
        }
    };
    streams.listener("order", handler).consumer(name).ordered_by(|_| Some("all")).start().await.unwrap()
}

type Begun = mpsc::UnboundedSender<(&'static str, u64)>;

async fn send(streams: &Streams, numbers: std::ops::Range<u64>) {
    for number in numbers {
        streams.send_message("order", &Message::json(&Order { number }).unwrap()).await.unwrap();
    }
}

/// Waits until it is so, while everything else of this runtime goes on.
async fn until(what: &'static str, is_so: impl FnMut() -> bool + Send + 'static) {
    tokio::task::spawn_blocking(move || servers::wait_until(what, SOON, is_so)).await.unwrap();
}

/// How much longer the lease of the leader holds in Redis.
fn lease_ms(redis: &Redis) -> i64 {
    redis.run(&["PTTL", LEADER])
}

#[tokio::test]
async fn a_leader_whose_renewal_is_not_answered_begins_nothing_when_its_lease_has_ended() {
    const COUNT: u64 = 12;
    if !installed() {
        return;
    }
    let logs = Logs::new();
    let redis = Arc::new(Redis::single());
    let proxy = Proxy::to(redis.port());
    // A lease of 5 s, which is how long a call of Redis may take, and a little more than one handler call may take.
    let settings = Settings { processing_timeout: Duration::from_secs(4), ..quick() };
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let streams = Streams::connect_with(&url, settings.clone()).await.unwrap();
    let direct = connect(&redis, settings).await;
    let (gates, (begun, mut beginnings)) =
        ([Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1_000))], mpsc::unbounded_channel());
    let _one = listen(&streams, "one", &gates[0], &begun).await;
    send(&direct, 0..COUNT).await;
    assert_eq!(next(&mut beginnings).await, ("one", 0));
    let server = redis.clone();
    until("all of them are read", move || pending(&server, "order") == COUNT as usize).await;
    proxy.hold();
    let two = listen(&direct, "two", &gates[1], &begun).await;
    let server = redis.clone();
    until("the lease is half over", move || lease_ms(&server) < 2_500).await;
    gates[0].add_permits(1);
    assert_eq!(next(&mut beginnings).await, ("one", 1));
    // Redis has given the lease to the other one, and no call of the first one has failed.
    assert_eq!(next(&mut beginnings).await, ("two", 0));
    gates[0].add_permits(1_000);
    for number in 1..COUNT {
        assert_eq!(next(&mut beginnings).await, ("two", number));
    }
    proxy.release();
    // The first one has none of them left when it leads again.
    two.stop().await;
    send(&direct, COUNT..COUNT + 1).await;
    assert_eq!(next(&mut beginnings).await, ("one", COUNT));
    let lost = logs.with("ordered lease lost");
    assert!(lost.len() == 1 && lost[0].contains("it was not renewed in time"), "{lost:?}");
    streams.shutdown().await.unwrap();
    direct.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_new_leader_whose_first_renewal_is_lost_goes_on_leading() {
    if !installed() {
        return;
    }
    let logs = Logs::new();
    let redis = Arc::new(Redis::single());
    let proxy = Arc::new(Proxy::to(redis.port()));
    // A lease of 5 s, renewed each second.
    let settings = Settings { processing_timeout: Duration::from_secs(4), ..quick() };
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let streams = Streams::connect_with(&url, settings).await.unwrap();
    let (gate, (begun, mut beginnings)) = (Arc::new(Semaphore::new(1_000)), mpsc::unbounded_channel());
    let _one = listen(&streams, "one", &gate, &begun).await;
    let renewal = script::standalone_script(include_str!("../../src/scripts/leader.lua"));
    let needle = script::needle(&renewal, &redis);
    let direct = connect(&redis, quick()).await;
    send(&direct, 0..1).await;
    assert_eq!(next(&mut beginnings).await, ("one", 0));
    proxy.cut_before(&needle, 1);
    let wire = proxy.clone();
    until("the renewal is lost", move || wire.needles_met() == 1).await;
    let (server, before) = (redis.clone(), lease_ms(&redis));
    until("the next one is not", move || lease_ms(&server) > before + 500).await;
    send(&direct, 1..2).await;
    assert_eq!(next(&mut beginnings).await, ("one", 1));
    assert_eq!(logs.with("ordered lease lost"), Vec::<String>::new());
    streams.shutdown().await.unwrap();
    direct.shutdown().await.unwrap();
}
