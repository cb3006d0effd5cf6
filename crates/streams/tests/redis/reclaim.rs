//! D5: what dead consumers left, and who is to blame.

use std::{
    collections::HashMap,
    process::{Child, Command, Stdio},
    time::Duration,
};

use duly_streams::{Entry, Retry, Settings, Streams};
use tokio::sync::mpsc;

use crate::{
    Order, next, quick,
    server::{Server, both},
    wait_until,
};

const URL: &str = "DULY_STREAMS_RECLAIM_URL";

fn short() -> Settings {
    Settings { retry: Retry { attempts: 4, crashes: 2, ..quick().retry }, ..quick() }
}

fn process(role: &str, server: &Server) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--nocapture"]).env(URL, server.url());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Handles all but one, which it dies of.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_process_that_dies_of_one() {
    let Some(url) = std::env::var_os(URL) else { return };
    let streams = Streams::connect_with(url.to_str().unwrap(), short()).await.unwrap();
    let handler = |order: Entry<Order>| async move {
        // So that all of a read are in hand when it comes to the one.
        tokio::task::yield_now().await;
        if order.value.number == 13 {
            std::process::abort();
        }
        Err::<(), _>(if order.value.number == 5 { "it always fails" } else { return Ok(()) })
    };
    streams.listener("order", handler).start().await.unwrap();
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kills_its_process_is_found_out_alone_and_its_neighbours_are_not_blamed() {
    for server in both() {
        let streams = server.connect(short()).await;
        for number in 0..40 {
            streams.send("order", &Order { number }).await.unwrap();
        }
        let dead = server.dead("order");
        let mut child = process("reclaim::as_a_process_that_dies_of_one", &server);
        let mut deaths = 0;
        wait_until("all are settled", || {
            if child.try_wait().unwrap().is_some() {
                deaths += 1;
                child = process("reclaim::as_a_process_that_dies_of_one", &server);
            }
            server.len(&dead) == 2 && server.pending("order", "duly-streams") == 0
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let letters: HashMap<String, HashMap<String, String>> =
            server.entries(&dead).into_iter().map(|letter| (letter["body"].clone(), letter)).collect();
        let killer = &letters[r#"{"number":13}"#];
        assert_eq!(killer["duly-dead-attempts"], "2", "twice alone: {killer:?}");
        assert!(killer["duly-dead-reason"].contains("died 2 times"), "{killer:?}");
        assert_eq!(letters[r#"{"number":5}"#]["duly-dead-attempts"], "4");
        assert_eq!(deaths, 3, "once among others, twice alone");
        assert!(server.beside("order").is_empty(), "{:?}", server.beside("order"));
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_still_worked_on_is_not_taken_over_however_long_it_takes() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let (begun, mut beginning) = mpsc::unbounded_channel();
        let (go, removed) = tokio::sync::watch::channel(false);
        let slow = move |order: Entry<Order>| {
            let (begun, mut removed) = (begun.clone(), removed.clone());
            async move {
                let _ = begun.send(order.value.number);
                removed.wait_for(|go| *go).await.map(drop).map_err(|_| "nobody lets it go")
            }
        };
        // This one may take an hour; the other takes over after five seconds what nobody works on.
        let (hour, quickly) = (Duration::from_secs(3600), Duration::from_secs(4));
        streams
            .listener("order", slow.clone())
            .consumer("slow")
            .concurrency(1)
            .processing_timeout(hour)
            .start()
            .await
            .unwrap();
        streams.send("order", &Order { number: 1 }).await.unwrap();
        next(&mut beginning).await;
        streams.listener("order", slow).consumer("quick").processing_timeout(quickly).start().await.unwrap();
        let seconds = || server.of("order").run::<(u64, u64)>(&["TIME"]).0;
        let began = seconds();
        wait_until("the other would have taken it over", || seconds() >= began + 8);
        assert!(beginning.try_recv().is_err(), "it is still worked on");
        go.send_replace(true);
        wait_until("all are acknowledged", || server.pending("order", "duly-streams") == 0);
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_that_are_gone_for_long_are_taken_out_only_if_they_hold_nothing() {
    for server in both() {
        let redis = server.of("order");
        redis.run::<()>(&["XGROUP", "CREATE", "order", "duly-streams", "0", "MKSTREAM"]);
        redis.run::<usize>(&["XGROUP", "CREATECONSUMER", "order", "duly-streams", "idle"]);
        redis.run::<String>(&["XADD", "order", "*", "body", r#"{"number":1}"#]);
        redis.run::<redis::Value>(&["XREADGROUP", "GROUP", "duly-streams", "holds", "STREAMS", "order", ">"]);
        let names = || {
            let all: Vec<HashMap<String, redis::Value>> =
                redis.run(&["XINFO", "CONSUMERS", "order", "duly-streams"]);
            let name = |one: &HashMap<String, redis::Value>| {
                redis::from_redis_value::<String>(one["name"].clone()).unwrap()
            };
            all.iter().map(name).collect::<Vec<_>>()
        };
        let removed = Settings { consumer_idle_max: Duration::from_millis(1), ..quick() };
        let streams = server
            .connect(Settings { processing_timeout: Duration::from_secs(3600), ..removed.clone() })
            .await;
        let done = |_: Entry<Order>| async { Ok::<(), String>(()) };
        let listener = streams.listener("order", done).start().await.unwrap();
        wait_until("the idle one is out", || !names().contains(&"idle".to_owned()));
        assert!(names().contains(&"holds".to_owned()), "{:?}", names());
        listener.stop().await;
        // Once it is taken over what the other holds, that one goes, too; and nothing was forgotten.
        streams.listener("order", done).processing_timeout(Duration::from_millis(50)).start().await.unwrap();
        wait_until("it is out as well", || !names().contains(&"holds".to_owned()));
        wait_until("what it held is done", || server.pending("order", "duly-streams") == 0);
        streams.shutdown().await.unwrap();
    }
}
