//! Workers that receive, fail and come back.

use duly::{
    Backoff, DeadReason, Message, Nack, Outcome, Receive, RetryOverride, Settled, State, minutes, seconds,
};

use crate::bench::Bench;

fn waiting(max: usize, wait_s: u64) -> Receive {
    Receive { max, wait: seconds(wait_s), ..Receive::default() }
}

/// Half an hour in which a worker's own database is away, at the default settings.
#[tokio::test]
async fn a_worker_whose_database_is_away_for_half_an_hour_loses_nothing() {
    for nack in [Nack::again(), Nack::failed("no connection to the database")] {
        let bench = Bench::start().await;
        let ids = [bench.send(Message::to("order")).await, bench.send(Message::to("order")).await];
        let back = bench.duly.now().saturating_add(minutes(30));
        while bench.duly.now() < back.saturating_add(minutes(10)) {
            for received in bench.duly.receive("order", Receive::default()).await.unwrap() {
                let settled = if bench.duly.now() < back {
                    bench.duly.nack(&[received.receipt], nack.clone()).await
                } else {
                    bench.duly.ack(&[received.receipt]).await
                };
                assert_eq!(settled.unwrap(), [Settled::Done]);
            }
            bench.clock.advance(seconds(1));
        }
        for id in &ids {
            let record = bench.record(id).await;
            assert_eq!(record.state, State::Delivered, "{nack:?}: {:?}", record.history);
            assert!(record.attempts < 20, "{} of 25 tries", record.attempts);
        }
    }
}

fn leased(lease_s: u64) -> Receive {
    Receive { lease: seconds(lease_s), ..Receive::default() }
}

/// The same, and the worker hangs in its handler: nobody sends a nack, and every lease of a minute ends.
#[tokio::test]
async fn a_worker_that_hangs_for_half_an_hour_loses_nothing() {
    let bench = Bench::start().await;
    let ids = [bench.send(Message::to("order")).await, bench.send(Message::to("order")).await];
    let back = bench.duly.now().saturating_add(minutes(30));
    let mut hanging = Vec::new();
    while bench.duly.now() < back.saturating_add(minutes(12)) {
        for received in bench.duly.receive("order", leased(60)).await.unwrap() {
            if bench.duly.now() < back {
                hanging.push(received.receipt);
            } else {
                assert_eq!(bench.duly.ack(&[received.receipt]).await.unwrap(), [Settled::Done]);
            }
        }
        bench.clock.advance(seconds(1));
    }
    for id in &ids {
        let record = bench.record(id).await;
        assert_eq!(record.state, State::Delivered, "{:?}", record.history);
        let lost = record.history.iter().filter(|attempt| attempt.outcome == Outcome::Lost).count();
        assert_eq!(lost as u32 + 1, record.attempts, "each lease that ended, and the try that went well");
        assert!((6..15).contains(&lost), "{lost} of 25 tries");
    }
    assert_eq!(bench.duly.totals().await.unwrap().dead, 0);
    let late = bench.duly.ack(&hanging).await.unwrap();
    assert!(late.iter().all(|settled| *settled == Settled::Lost), "they are somebody else's");
}

#[tokio::test]
async fn a_worker_that_always_dies_with_its_message_uses_up_its_attempts() {
    let bench = Bench::start().await;
    let own = RetryOverride { attempts: Some(4), ..RetryOverride::default() };
    let id = bench.send(Message::to("order").text("kept").retry(own)).await;
    let mut received_at = Vec::new();
    for _ in 0..300 {
        let received = bench.duly.receive("order", leased(10)).await.unwrap();
        received_at.extend(received.iter().map(|_| bench.duly.now()));
        bench.clock.advance(seconds(1));
    }
    let record = bench.record(&id).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Exhausted)));
    assert_eq!((record.attempts, record.history.len()), (4, 4), "{:?}", record.history);
    let gaps: Vec<_> = received_at.windows(2).map(|pair| pair[1].since(pair[0]).as_secs()).collect();
    // The lease of ten seconds, and a wait that grows: five and a quarter more, up to ten, up to twenty.
    let most = [18, 21, 31];
    assert_eq!(gaps.len(), 3, "{gaps:?}");
    assert!(gaps.iter().zip(most).all(|(gap, most)| (15..=most).contains(gap)), "{gaps:?}");
    assert!(gaps[2] >= 20, "{gaps:?}");
}

fn once() -> RetryOverride {
    RetryOverride { attempts: Some(1), ..RetryOverride::default() }
}

#[tokio::test]
async fn a_message_with_one_attempt_that_was_received_alone_never_comes_twice() {
    for (max, topics) in [(1, vec!["order"]), (10, vec!["order"]), (1, vec!["order", "mail"])] {
        let bench = Bench::start().await;
        let id = bench.send(Message::to("order").text("kept").retry(once())).await;
        let want = Receive { max, ..leased(10) };
        assert_eq!(bench.duly.receive_any(&topics, want.clone()).await.unwrap().len(), 1);
        for _ in 0..30 {
            bench.pass(seconds(11)).await;
            let received = bench.duly.receive_any(&topics, want.clone()).await.unwrap();
            assert_eq!(received.len(), 0, "max {max} of {topics:?}");
        }
        let record = bench.record(&id).await;
        assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Exhausted)));
        let history: Vec<_> = record.history.iter().map(|attempt| attempt.outcome).collect();
        assert_eq!((record.attempts, history), (1, vec![Outcome::Lost]), "it says that its lease ended");
    }
}

#[tokio::test]
async fn the_last_attempt_is_the_last_also_if_its_lease_ends() {
    let bench = Bench::start().await;
    let twice = RetryOverride { attempts: Some(2), ..RetryOverride::default() };
    let id = bench.send(Message::to("order").retry(twice)).await;
    let first = bench.duly.receive("order", leased(10)).await.unwrap();
    bench.duly.nack(&[&first[0].receipt], Nack::again()).await.unwrap();
    bench.pass(minutes(1)).await;
    assert_eq!(bench.duly.receive("order", leased(10)).await.unwrap()[0].attempt, 2);
    bench.pass(minutes(1)).await;
    assert_eq!(bench.duly.receive("order", leased(10)).await.unwrap().len(), 0);
    assert_eq!(bench.record(&id).await.reason, Some(DeadReason::Exhausted));
}

/// Any of them may have ended the worker: each comes once more, and alone, so that only the one to blame is a dead letter.
#[tokio::test]
async fn messages_with_one_attempt_that_were_received_together_come_once_more_and_alone() {
    for topics in [["order", "order"], ["order", "mail"]] {
        let bench = Bench::start().await;
        let [good, bad] = topics.map(|topic| Message::to(topic).retry(once()));
        let (good, bad) = (bench.send(good).await, bench.send(bad).await);
        let both = ["order", "mail"];
        assert_eq!(bench.duly.receive_any(&both, leased(10)).await.unwrap().len(), 2);
        let mut received = Vec::new();
        for _ in 0..30 {
            bench.pass(seconds(11)).await;
            for one in bench.duly.receive_any(&both, Receive { max: 1, ..leased(10) }).await.unwrap() {
                if one.message.id == good {
                    bench.duly.ack(&[&one.receipt]).await.unwrap();
                }
                received.push(one.message.id);
            }
        }
        received.sort();
        let mut each_once = vec![good.clone(), bad.clone()];
        each_once.sort();
        assert_eq!(received, each_once);
        assert_eq!(bench.record(&good).await.state, State::Delivered);
        let bad = bench.record(&bad).await;
        assert_eq!((bad.reason, bad.attempts), (Some(DeadReason::Exhausted), 2));
    }
}

#[tokio::test]
async fn fire_ends_the_wait_after_a_lease_that_ended() {
    let bench = Bench::start().await;
    let id = bench.send(Message::to("order")).await;
    for _ in 0..2 {
        assert_eq!(bench.duly.receive("order", leased(10)).await.unwrap().len(), 1);
        bench.pass(seconds(11)).await;
        assert_eq!(bench.duly.receive("order", leased(10)).await.unwrap().len(), 0, "it waits");
        bench.duly.fire(&id).await.unwrap();
    }
    assert_eq!(bench.duly.receive("order", leased(10)).await.unwrap()[0].attempt, 3);
}

#[tokio::test]
async fn many_leases_that_ended_hold_up_no_other_message() {
    let bench = Bench::start().await;
    bench.duly.send_batch((0..200).map(|_| Message::to("order"))).await;
    let all = Receive { max: 1_000, ..leased(10) };
    assert_eq!(bench.duly.receive("order", all).await.unwrap().len(), 200);
    bench.clock.advance(seconds(11));
    let other = bench.send(Message::to("order")).await;
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    assert_eq!(received.iter().map(|one| &one.message.id).collect::<Vec<_>>(), [&other]);
}

#[tokio::test]
async fn a_nack_follows_the_policy_of_the_message() {
    let bench = Bench::start().await;
    let own = RetryOverride {
        backoff: Some(Backoff::Linear),
        min: Some(seconds(10)),
        max: Some(seconds(20)),
        attempts: Some(3),
    };
    let id = bench.send(Message::to("order").retry(own)).await;
    for (attempt, least, most) in [(1, 10, 13), (2, 10, 20)] {
        let received = bench.duly.receive("order", Receive::default()).await.unwrap();
        let now = bench.duly.now();
        bench.duly.nack(&[&received[0].receipt], Nack::failed("x")).await.unwrap();
        let record = bench.record(&id).await;
        let wait = record.ready.since(now);
        assert!((seconds(least)..=seconds(most)).contains(&wait), "{wait:?} after try {attempt}");
        assert_eq!(record.history.last().unwrap().outcome, Outcome::Failed);
        bench.clock.advance(wait);
    }
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    bench.duly.nack(&[&received[0].receipt], Nack::failed("the last time")).await.unwrap();
    let record = bench.record(&id).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Exhausted)));
    assert_eq!(record.history.last().unwrap().detail, "the last time");
}

#[tokio::test]
async fn a_nack_may_give_up() {
    let bench = Bench::start().await;
    let id = bench.send(Message::to("order").text("kept")).await;
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    bench.duly.nack(&[&received[0].receipt], Nack::dead("no such order")).await.unwrap();
    let record = bench.record(&id).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Refused)));
    assert_eq!((record.history[0].detail.as_str(), record.attempts), ("no such order", 1));
}

#[tokio::test]
async fn what_nobody_receives_expires_by_itself_also_where_its_queue_is_paused() {
    let bench = Bench::start().await;
    bench.duly.pause_queue("paused").await.unwrap();
    let mut ids = Vec::new();
    for queue in ["nobody", "paused"] {
        ids.push(bench.send(Message::to(queue).text("kept").max_lateness(seconds(30))).await);
    }
    let patient = bench.send(Message::to("nobody").max_lateness(minutes(30))).await;
    let plain = bench.send(Message::to("nobody")).await;
    bench.pass(seconds(30)).await;
    for id in &ids {
        assert_eq!(bench.record(id).await.state, State::Pending, "it is not too late yet");
    }
    bench.pass(seconds(6)).await;
    for id in &ids {
        let record = bench.record(id).await;
        assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Expired)));
        assert_eq!(record.message.body.as_bytes(), b"kept");
    }
    for id in [&patient, &plain] {
        assert_eq!(bench.record(id).await.state, State::Pending);
    }
    assert!(bench.duly.totals().await.unwrap().balance());
}

#[tokio::test]
async fn many_that_wait_do_not_hide_what_is_too_late_behind_them() {
    let bench = Bench::start().await;
    for _ in 0..5 {
        bench.duly.send_batch((0..2_000).map(|_| Message::to("nobody"))).await;
    }
    bench.clock.advance(seconds(1));
    let late = bench.send(Message::to("nobody").max_lateness(seconds(1))).await;
    bench.pass(seconds(20)).await;
    assert_eq!(bench.record(&late).await.reason, Some(DeadReason::Expired));
}

#[tokio::test]
async fn a_receiver_of_several_queues_is_woken_by_any_of_them() {
    let bench = Bench::start().await;
    for queue in ["a", "b", "c"] {
        let duly = bench.duly.clone();
        let receiver = tokio::spawn(async move { duly.receive_any(&["a", "b", "c"], waiting(10, 20)).await });
        bench.pass(seconds(3)).await;
        assert!(!receiver.is_finished());
        bench.send(Message::to(queue)).await;
        bench.calm().await;
        let received = receiver.await.unwrap().unwrap();
        assert_eq!((received.len(), received[0].message.topic.as_str()), (1, queue));
        bench.duly.ack(&[&received[0].receipt]).await.unwrap();
    }
}

#[tokio::test]
async fn no_queue_starves_another() {
    let bench = Bench::start().await;
    bench.duly.send_batch((0..1_000).map(|_| Message::to("busy"))).await;
    bench.duly.send_batch((0..30).map(|_| Message::to("quiet"))).await;
    // Each has its share, and what one leaves is the other's.
    let received = bench.duly.receive_any(&["busy", "quiet"], waiting(20, 0)).await.unwrap();
    let of = |queue: &str| received.iter().filter(|one| one.message.topic.as_str() == queue).count();
    assert_eq!((of("busy"), of("quiet")), (10, 10));
    let received = bench.duly.receive_any(&["busy", "empty"], waiting(20, 0)).await.unwrap();
    assert_eq!(received.len(), 20);
    // One at a time there is no share: then each is as often the first.
    let mut quiet = 0;
    for _ in 0..100 {
        let received = bench.duly.receive_any(&["busy", "quiet"], waiting(1, 0)).await.unwrap();
        quiet += usize::from(received[0].message.topic.as_str() == "quiet");
    }
    assert_eq!(quiet, 20, "all that were left");
}

#[tokio::test]
async fn a_receipt_is_known_by_its_queue_also_to_another_process() {
    let bench = Bench::start().await;
    bench.send(Message::to("order")).await;
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    let other = Bench::on(bench.store.clone(), bench.clock.clone(), |builder| builder).await;
    for duly in [&bench.duly, &other.duly] {
        let queues = duly.queues_of(&[&received[0].receipt]).await.unwrap();
        assert_eq!(queues[0].as_ref().map(|queue| queue.as_str()), Some("order"));
    }
}
