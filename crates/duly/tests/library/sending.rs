//! Sending, cancelling, rescheduling.

use duly::{Changed, Levels, Message, SinkErrorKind, SinkOptions, State, millis, minutes, seconds};

use crate::bench::{Bench, Mood, Target};

async fn with_target(mood: Mood) -> (Bench, std::sync::Arc<Target>) {
    let clock = duly::ManualClock::new();
    let target = Target::new(&clock, mood);
    let sink = target.clone();
    let store = std::sync::Arc::new(duly_stores::MemoryStore::new());
    let bench = Bench::on(store, clock, |b| b.sink("orders", sink, SinkOptions::default())).await;
    (bench, target)
}

#[tokio::test]
async fn a_message_goes_out_at_its_time_and_not_before() {
    let (bench, target) = with_target(Mood::Good).await;
    let due = bench.in_ms(15 * 60_000);
    let id = bench.send(Message::to("orders/unpaid").text("x").after(minutes(15))).await;
    bench.pass(minutes(15) - millis(1)).await;
    assert_eq!(target.arrivals(), []);
    bench.pass(millis(1)).await;
    assert_eq!(target.arrivals(), [(id.to_string(), 1, due)]);
    let record = bench.record(&id).await;
    assert_eq!(record.state, State::Delivered);
    assert_eq!(record.receipt, Some(format!("proof of {id}")));
}
