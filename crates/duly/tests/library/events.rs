//! What Duly tells while it happens.

use duly::{Event, Message, Timestamp, Verdict, minutes, seconds};

use crate::bench::Bench;

#[tokio::test]
async fn a_message_is_told_of_from_its_acceptance_to_its_delivery() {
    let bench = Bench::start().await;
    let mut events = bench.duly.events();
    bench.duly.handle("order", |_| async { Verdict::Done }).start().await.unwrap();
    let id = bench.send(Message::to("order").after(seconds(5))).await;
    let cancelled = bench.send(Message::to("order").after(seconds(5))).await;
    bench.duly.cancel(&cancelled).await.unwrap();
    bench.pass(seconds(10)).await;
    assert!(matches!(events.next().await, Some(Event::Accepted { id: reported, .. }) if reported == id));
    assert!(matches!(events.next().await, Some(Event::Accepted { .. })));
    let lane = bench.record(&cancelled).await.message.lane();
    match events.next().await {
        Some(Event::Cancelled { id, lane: reported, .. }) => assert_eq!((id, reported), (cancelled, lane)),
        other => panic!("{other:?}"),
    }
    match events.next().await {
        Some(Event::Delivered { id: reported, attempt: 1, lateness, .. }) => {
            assert_eq!((reported, lateness), (id, seconds(0)));
        }
        other => panic!("{other:?}"),
    }
    let stats = bench.duly.stats();
    assert_eq!((stats.accepted, stats.delivered, stats.cancelled), (2, 1, 1));
    assert_eq!((stats.lateness.count, stats.lateness.max), (1, seconds(0)));
    assert_eq!(events.missed(), 0);
}

#[tokio::test]
async fn a_jump_of_the_clock_is_told_and_followed() {
    let bench = Bench::start().await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(0));
    let counted = seen.clone();
    bench
        .duly
        .handle("order", move |_| {
            *counted.lock().unwrap() += 1;
            async {}
        })
        .start()
        .await
        .unwrap();
    bench.send(Message::to("order").after(minutes(60))).await;
    bench.pass(seconds(10)).await;
    let mut events = bench.duly.events();

    let back = bench.duly.now().saturating_sub(minutes(30));
    bench.clock.set_wall(back);
    bench.pass(seconds(3)).await;
    assert!(matches!(events.next().await, Some(Event::ClockJumped { by_us: -1_800_000_000, .. })));
    bench.pass(minutes(70)).await;
    assert_eq!(*seen.lock().unwrap(), 0, "due by wall time, not by the time that passed");

    let on = Timestamp::from_millis(bench.duly.now().as_millis() + 30 * 60_000);
    bench.clock.set_wall(on);
    bench.pass(seconds(3)).await;
    assert_eq!(*seen.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_slow_listener_loses_events_and_hears_how_many() {
    let bench = Bench::start().await;
    let mut events = bench.duly.events();
    bench.duly.send_batch((0..6_000).map(|_| Message::to("order"))).await;
    assert!(matches!(events.next().await, Some(Event::Accepted { .. })));
    assert_eq!(events.missed(), 6_000 - 4_096);
}
