//! What each failure is taken for.

use std::{sync::Arc, time::Duration};

use duly_core::{ErrorScope, SinkErrorKind};
use testkit::servers::{
    redis::{Options, Redis, installed},
    wait_until,
};

use crate::{failure, ids, one, sink_to, sink_with, to};

#[tokio::test]
async fn a_wrong_password_pauses_the_lane_and_so_does_none() {
    if !installed() {
        return;
    }
    let redis = Redis::with(Options { password: Some("right".into()), ..Options::default() });
    for who in [":wrong@", "nobody:right@", ""] {
        let sink = sink_with(&format!("redis://{who}127.0.0.1:{}", redis.port()), "");
        let error = one(&sink, "orders", "a").await.unwrap_err();
        assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{}", error.detail);
        assert!(!error.detail.contains("wrong") && !error.detail.contains("right"), "{}", error.detail);
        assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
    }
    let sink = sink_to(&redis);
    sink.probe().await.unwrap();
    one(&sink, "orders", "a").await.unwrap();
}

#[tokio::test]
async fn a_user_without_the_right_to_run_scripts_pauses_the_lane() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all", "-@scripting"]);
    let sink = sink_with(&format!("redis://weak:secret@127.0.0.1:{}", redis.port()), "");
    assert_eq!(failure(&sink, "orders", "a").await, SinkErrorKind::Misconfigured);
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
}

#[tokio::test]
async fn the_rights_that_the_documentation_names_are_enough() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let rights = ["+evalsha", "+eval", "+script|exists", "+xadd", "+xtrim", "+getex", "+set", "+time"];
    let mut words =
        vec!["ACL", "SETUSER", "few", "on", ">secret", "~orders", "~duly:mark:*", "~duly:rights:*"];
    words.extend(rights.into_iter().chain(["+hget", "+hset", "+unlink", "+pexpire"]));
    redis.run::<()>(&words);
    let url = format!("redis://few:secret@127.0.0.1:{}", redis.port());
    let sink = sink_with(&url, "max_len = 100\nmax_age = '1h'");
    sink.probe().await.unwrap();
    one(&sink, "orders", "a").await.unwrap();
    sink.settled(&[to("orders", "a")]).await;
    assert_eq!(crate::markers(&redis), [""; 0]);
    let outcomes = sink.deliver(&[to("orders", "b"), to("others", "c"), to("orders", "d")]).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination), "{error}");
}

#[tokio::test]
async fn a_user_who_may_not_run_eval_is_denied_by_stream_as_everybody() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let keys = ["~orders", "~duly:mark:*", "~duly:rights:*"];
    let mut words = vec!["ACL", "SETUSER", "hashes", "on", ">secret", "+@all", "-eval"];
    words.extend(keys);
    redis.run::<()>(&words);
    // Somebody else has brought the script.
    one(&sink_to(&redis), "orders", "first").await.unwrap();
    let sink = sink_with(&format!("redis://hashes:secret@127.0.0.1:{}", redis.port()), "");
    let outcomes = sink.deliver(&[to("orders", "a"), to("others", "b")]).await;
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination), "{error}");
}

#[tokio::test]
async fn missing_rights_that_every_message_needs_pause_the_lane_and_append_nothing() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let users = [
        ("no-xadd", vec!["~*", "+@all", "-xadd"]),
        ("no-set", vec!["~*", "+@all", "-set"]),
        ("no-marks", vec!["~orders", "+@all"]),
    ];
    for (user, rights) in users {
        let mut words = vec!["ACL", "SETUSER", user, "on", ">secret"];
        words.extend(rights);
        redis.run::<()>(&words);
        let sink = sink_with(&format!("redis://{user}:secret@127.0.0.1:{}", redis.port()), "");
        for _ in 0..2 {
            let error = one(&sink, "orders", "a").await.unwrap_err();
            let found = (error.kind, error.scope);
            assert_eq!(found, (SinkErrorKind::Misconfigured, ErrorScope::Target), "{user}: {error}");
        }
    }
    assert_eq!(redis.run::<usize>(&["EXISTS", "orders"]), 0, "an entry without a marker would come again");
}

#[tokio::test]
async fn something_else_under_the_streams_name_or_a_stream_at_its_end_denies_that_stream_alone() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["SET", "text", "x"]);
    redis.run::<String>(&["XADD", "ended", "18446744073709551615-18446744073709551615", "a", "b"]);
    let batch = [to("orders", "a"), to("text", "b"), to("ended", "c"), to("orders", "d")];
    let outcomes = sink_to(&redis).deliver(&batch).await;
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok());
    for outcome in &outcomes[1..3] {
        let error = outcome.as_ref().unwrap_err();
        assert_eq!((error.kind, error.scope), (SinkErrorKind::Denied, ErrorScope::Destination), "{error}");
    }
    let without = |marker: &String| marker.contains("text") || marker.contains("ended");
    assert!(!crate::markers(&redis).iter().any(without), "no marker without an entry");
}

#[tokio::test]
async fn out_of_memory_is_throttled_and_leaves_nothing_half_done() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_to(&redis);
    one(&sink, "orders", "a").await.unwrap();
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = one(&sink, "orders", "b").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Throttled, ErrorScope::Target), "{error}");
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    one(&sink, "orders", "b").await.unwrap();
    assert_eq!(ids(&redis, "orders"), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_not_write_now_is_waited_for() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_to(&redis);
    one(&sink, "orders", "a").await.unwrap();
    // Nobody replicates this one.
    redis.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = one(&sink, "orders", "b").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unreachable, ErrorScope::Target), "{error}");
    assert!(error.detail.contains("NOREPLICAS"), "{error}");
    redis.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // It can save nothing into a folder that takes no file of this name.
    let folder = redis.run::<Vec<String>>(&["CONFIG", "GET", "dir"]).remove(1);
    std::fs::create_dir(std::path::Path::new(&folder).join("dump.rdb")).unwrap();
    for (name, value) in [("appendonly", "no"), ("save", "1 1")] {
        redis.run::<()>(&["CONFIG", "SET", name, value]);
    }
    redis.run::<String>(&["BGSAVE"]);
    tokio::task::block_in_place(|| {
        wait_until("the save has failed", Duration::from_secs(20), || {
            redis.run::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
        });
    });
    let error = one(&sink, "orders", "b").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unreachable, ErrorScope::Target), "{error}");
    assert!(error.detail.contains("MISCONF"), "{error}");
    redis.run::<()>(&["CONFIG", "SET", "save", ""]);
    one(&sink, "orders", "b").await.unwrap();
}

#[tokio::test]
async fn a_script_that_runs_for_long_throttles() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_to(&redis);
    one(&sink, "orders", "a").await.unwrap();
    redis.run::<()>(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    let endless = redis::Client::open(redis.url()).unwrap();
    let busy = tokio::task::spawn_blocking(move || {
        let mut connection = endless.get_connection().unwrap();
        redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut connection).unwrap_err()
    });
    let mut error = one(&sink, "orders", "b").await;
    // The script may not have begun.
    for n in 0.. {
        if error.is_err() {
            break;
        }
        error = one(&sink, "orders", &format!("b{n}")).await;
    }
    let error = error.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Throttled, ErrorScope::Target), "{error}");
    redis.run::<()>(&["SCRIPT", "KILL"]);
    busy.await.unwrap();
    one(&sink, "orders", "c").await.unwrap();
}

#[tokio::test]
async fn a_replica_is_no_place_to_write_to() {
    if !installed() {
        return;
    }
    let (master, replica) = (Redis::single(), Redis::single());
    let sink = sink_to(&replica);
    one(&sink, "orders", "a").await.unwrap();
    replica.run::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let error = one(&sink, "orders", "b").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unreachable, ErrorScope::Target), "{error}");
    // The master again: another connection is made.
    replica.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    one(&sink, "orders", "b").await.unwrap();
}

#[tokio::test]
async fn a_server_that_hangs_leaves_the_outcome_unknown_and_is_not_waited_for_twice() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_with(&redis.url(), "request_timeout = '3s'");
    one(&sink, "orders", "a").await.unwrap();
    redis.pause();
    assert_eq!(failure(&sink, "orders", "b").await, SinkErrorKind::Unknown, "it was sent");
    assert_eq!(failure(&sink, "orders", "c").await, SinkErrorKind::Unreachable, "this one was not");
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Unreachable);
    redis.cont();
    for id in ["b", "c"] {
        one(&sink, "orders", id).await.unwrap();
    }
    let mut there = ids(&redis, "orders");
    there.sort_unstable();
    assert_eq!(there, ["a", "b", "c"], "and b is there once");
}

/// Says that it is older than it may be; everything else it leaves unanswered.
async fn an_old_redis() -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = client.read(&mut bytes).await {
                let requested = String::from_utf8_lossy(&bytes[..count]).to_uppercase();
                for _ in requested.matches("SETINFO") {
                    client.write_all(b"-ERR unknown subcommand\r\n").await.unwrap();
                }
                if requested.contains("INFO\r\n$6\r\nSERVER") {
                    let info = "# Server\r\nredis_version:6.2.14\r\n";
                    client.write_all(format!("${}\r\n{info}\r\n", info.len()).as_bytes()).await.unwrap();
                }
            }
        }
    });
    port
}

#[tokio::test]
async fn an_old_redis_is_refused_by_its_version() {
    let sink = sink_with(&format!("redis://127.0.0.1:{}", an_old_redis().await), "");
    let error = one(&sink, "orders", "a").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured);
    assert_eq!(error.detail, "this Redis is 6.2, and 7.0 or newer is needed");
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
}

#[tokio::test]
async fn a_failover_is_followed_to_the_new_master() {
    if !installed() {
        return;
    }
    let sentinels = Arc::new(testkit::servers::redis::Sentinels::start());
    let sink = sink_with(&sentinels.url(), "");
    one(&sink, "orders", "a").await.unwrap();
    assert_eq!(sentinels.pair()[0].run::<u32>(&["WAIT", "1", "5000"]), 1);
    let all = sentinels.clone();
    tokio::task::spawn_blocking(move || all.fail_over()).await.unwrap();
    // The first call may find the dead end of its connection; the second must find the new master.
    let _ = one(&sink, "orders", "b").await;
    one(&sink, "orders", "b").await.unwrap();
    assert_eq!(ids(&sentinels.pair()[1], "orders"), ["a", "b"]);
    // What the old master was asked and the new one has: the marker went with the entry.
    one(&sink, "orders", "a").await.unwrap();
    assert_eq!(ids(&sentinels.pair()[1], "orders"), ["a", "b"]);
}

#[tokio::test]
async fn a_topic_that_names_a_key_of_duly_or_duly_streams_is_refused_and_its_neighbours_go_out() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_to(&redis);
    for key in [
        "duly:{main}:paused",
        "duly:{main:0}:wait",
        "duly-streams:lock:{a}",
        "{orders}:duly-streams:tries:normal:g",
    ] {
        let fault = sink.check(&to(key, "b").message).unwrap_err();
        assert_eq!((fault.code.as_str(), fault.path.as_str()), ("reserved_topic", "topic"), "{key}");
        let ends = sink.deliver(&[to("orders", "a"), to(key, "b"), to("orders", "c")]).await;
        assert!(ends[0].is_ok() && ends[2].is_ok(), "{ends:?}");
        assert_eq!(ends[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused);
        assert_eq!(redis.run::<usize>(&["EXISTS", key]), 0, "{key}");
    }
    sink.check(&to("orders", "a").message).unwrap();
}
