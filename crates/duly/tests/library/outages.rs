//! Targets that are away, slow, refusing or poisoned.

use std::sync::Arc;

use duly::{
    DeadReason, ManualClock, Message, SinkErrorKind, SinkOptions, State, SweepSettings, hours, millis,
    minutes, seconds,
};
use duly_stores::MemoryStore;

use crate::{
    bench::{Bench, Mood, Target},
    logs::Logs,
};

#[tokio::test]
async fn a_sink_that_is_down_for_hours_loses_nothing_and_dead_letters_nothing() {
    for kind in [SinkErrorKind::Unreachable, SinkErrorKind::Throttled, SinkErrorKind::Misconfigured] {
        let clock = ManualClock::new();
        let target = Target::new(&clock, Mood::Bad(kind));
        let sink = target.clone();
        let bench = Bench::on(Arc::new(MemoryStore::new()), clock, |builder| {
            let sweep = SweepSettings { idle_max: minutes(5), max: minutes(5), ..SweepSettings::default() };
            builder.sink("orders", sink, SinkOptions::default()).sweep(sweep)
        })
        .await;
        let mut ids = Vec::new();
        for n in 0..500 {
            ids.push(bench.send(Message::to("orders/x").after(seconds(n))).await.to_string());
        }
        // Twice as long as all attempts of the default policy take.
        bench.pass(hours(3)).await;
        let totals = bench.duly.totals().await.unwrap();
        assert_eq!(
            (totals.dead, totals.delivered, totals.pending + totals.in_flight),
            (0, 0, 500),
            "{kind:?}"
        );
        target.set(Mood::Good);
        bench.pass(minutes(2)).await;
        let mut arrived = target.ids();
        arrived.sort_unstable();
        ids.sort_unstable();
        assert_eq!(arrived, ids, "{kind:?}");
        assert!(target.arrivals().iter().all(|(_, attempt, _)| *attempt == 1), "no attempt was used up");
    }
}

#[tokio::test]
async fn a_sink_that_hangs_for_a_minute_adds_no_lateness_to_another() {
    let clock = ManualClock::new();
    let (hanging, good) = (Target::new(&clock, Mood::Hangs), Target::new(&clock, Mood::Good));
    let (one, other) = (hanging.clone(), good.clone());
    let bench = Bench::on(Arc::new(MemoryStore::new()), clock, |builder| {
        let options = SinkOptions::default;
        builder.sink("hangs", one, options()).sink("good", other, options())
    })
    .await;
    let mut want = Vec::new();
    for n in 0..2_000 {
        bench.send(Message::to("hangs/x").after(millis(n * 30))).await;
    }
    for n in 0..600 {
        let accepted = bench.duly.send(Message::to("good/x").after(millis(n * 100))).await.unwrap();
        want.push((accepted.id.to_string(), 1, accepted.due));
    }
    bench.pass(minutes(1)).await;
    assert_eq!(good.arrivals(), want);
    hanging.set(Mood::Good);
    bench.pass(minutes(20)).await;
    let mut arrived = hanging.ids();
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), 2_000);
}

#[tokio::test]
async fn a_poisoned_message_is_told_from_its_neighbours() {
    let options = SinkOptions {
        retry: Some(duly::RetryPolicy { attempts: 3, ..duly::RetryPolicy::default() }),
        ..SinkOptions::default()
    };
    let (bench, target) = Bench::with_target(Mood::Poisoned("poison".into()), options).await;
    let batch = (0..50).map(|n| {
        let id = if n == 25 { "poison".to_owned() } else { format!("good-{n}") };
        Message::to("orders/x").id(id).after(seconds(1))
    });
    assert!(bench.duly.send_batch(batch).await.iter().all(Result::is_ok));
    bench.pass(minutes(1)).await;
    assert_eq!(target.arrivals().len(), 49);
    assert!(target.arrivals().iter().all(|(_, attempt, _)| *attempt == 1), "neighbours used up nothing");
    let record = bench.duly.get("poison").await.unwrap().unwrap();
    assert_eq!((record.state, record.reason, record.attempts), (State::Dead, Some(DeadReason::Exhausted), 3));
}

#[tokio::test]
async fn a_sink_that_panics_has_an_unknown_outcome_and_is_tried_again() {
    let (bench, target) = Bench::with_target(Mood::Panics, SinkOptions::default()).await;
    let id = bench.send(Message::to("orders/x")).await;
    bench.pass(millis(500)).await;
    let record = bench.record(&id).await;
    assert!(record.maybe_delivered);
    assert_eq!(record.history[0].detail, "panicked: as told");
    target.set(Mood::Good);
    bench.pass(seconds(5)).await;
    assert_eq!(target.ids(), [id.to_string()]);
}

#[tokio::test]
async fn a_refusal_is_a_dead_letter_with_the_targets_words() {
    let (bench, _target) =
        Bench::with_target(Mood::Bad(SinkErrorKind::Refused), SinkOptions::default()).await;
    let id = bench.send(Message::to("orders/x")).await;
    bench.pass(seconds(1)).await;
    let record = bench.record(&id).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Refused)));
    assert_eq!(record.history[0].detail, "as told");
}

#[tokio::test]
async fn what_is_not_delivered_within_its_lateness_expires_during_an_outage() {
    let (bench, target) =
        Bench::with_target(Mood::Bad(SinkErrorKind::Unreachable), SinkOptions::default()).await;
    let id = bench.send(Message::to("orders/x").max_lateness(minutes(5))).await;
    bench.pass(minutes(6)).await;
    target.set(Mood::Good);
    bench.pass(minutes(1)).await;
    assert_eq!(bench.record(&id).await.reason, Some(DeadReason::Expired));
    assert_eq!(target.arrivals(), []);
}

#[tokio::test]
async fn a_target_that_is_away_shows_at_a_glance_and_an_operator_may_try_it_now() {
    let (bench, target) =
        Bench::with_target(Mood::Bad(SinkErrorKind::Misconfigured), SinkOptions::default()).await;
    bench.send(Message::to("orders/x")).await;
    bench.pass(minutes(10)).await;
    let (lane, snapshot) = bench.duly.served().await.unwrap().remove(0);
    assert_eq!((lane.to_string().as_str(), snapshot.target), ("orders", duly::BreakerState::Open));
    assert_eq!(snapshot.last_error.as_deref(), Some("as told"));
    target.set(Mood::Good);
    bench.duly.probe("orders").unwrap();
    bench.calm().await;
    assert_eq!(target.arrivals().len(), 1);
    assert_eq!(bench.duly.served().await.unwrap()[0].1.target, duly::BreakerState::Closed);
}

#[tokio::test]
async fn a_sink_hears_of_what_is_recorded_and_of_nothing_else() {
    let (bench, target) = Bench::with_target(Mood::Good, SinkOptions::default()).await;
    let good = bench.send(Message::to("orders/x")).await.to_string();
    bench.pass(seconds(1)).await;
    assert_eq!(target.settled_ids(), [&*good]);

    target.set(Mood::Bad(SinkErrorKind::Refused));
    bench.send(Message::to("orders/x")).await;
    bench.pass(seconds(1)).await;
    target.set(Mood::Bad(SinkErrorKind::Unknown));
    let retried = bench.send(Message::to("orders/x")).await.to_string();
    bench.pass(seconds(1)).await;
    assert_eq!(target.settled_ids(), [&*good], "a refusal or a retry is no delivery");

    target.set(Mood::Good);
    bench.pass(minutes(10)).await;
    assert_eq!(target.settled_ids(), [good, retried]);
}

#[tokio::test]
async fn an_outage_is_logged_when_it_begins_now_and_then_and_when_it_ends() {
    let logs = Logs::new();
    let (bench, target) =
        Bench::with_target(Mood::Bad(SinkErrorKind::Unreachable), SinkOptions::default()).await;
    let mut events = bench.duly.events();
    let mut reported = 0;
    bench.send(Message::to("orders/x")).await;
    for _ in 0..60 {
        bench.pass(minutes(1)).await;
        loop {
            tokio::select! {
                biased;
                Some(event) = events.next() => {
                    reported += usize::from(matches!(event, duly::Event::SinkUnreachable { .. }));
                }
                () = std::future::ready(()) => break,
            }
        }
    }
    assert!(reported > 60, "it was probed {reported} times");
    let lines = |text: &str| logs.with(text).len();
    assert_eq!((lines("sink unreachable"), lines("sink still unreachable")), (1, 5));
    let last = logs.with("sink still unreachable").pop().unwrap();
    assert!(last.contains("lane=orders") && last.contains("as told") && last.contains("minutes=3"), "{last}");
    target.set(Mood::Good);
    bench.pass(minutes(2)).await;
    assert_eq!(target.arrivals().len(), 1);
    assert_eq!((lines("sink recovered"), lines("sink unreachable")), (1, 1));
    target.set(Mood::Bad(SinkErrorKind::Unreachable));
    bench.send(Message::to("orders/x")).await;
    bench.pass(minutes(2)).await;
    assert_eq!(lines("sink unreachable"), 2, "another outage");
}
