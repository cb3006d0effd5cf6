//! The built-in queue: receive, ack, nack, extend.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use duly::ports::store::Claim;
use duly::{
    Clock, DeadReason, Duly, ManualClock, Message, Monotonic, Now, Properties, Receive, RetryOverride,
    Settled, Sleep, State, millis, minutes, seconds,
};
use duly_stores::MemoryStore;

use crate::bench::Bench;

fn waiting(wait_s: u64) -> Receive {
    Receive { wait: seconds(wait_s), ..Receive::default() }
}

#[tokio::test]
async fn receive_waits_for_the_first_message_and_gives_it_at_its_time() {
    let bench = Bench::start().await;
    bench.send(Message::to("order").text("x").after(seconds(5))).await;
    let due = bench.in_ms(5_000);
    let duly = bench.duly.clone();
    let receiver = tokio::spawn(async move { (duly.receive("order", waiting(20)).await, duly.now()) });
    bench.pass(millis(4_999)).await;
    assert!(!receiver.is_finished());
    bench.pass(millis(1)).await;
    let (received, at) = receiver.await.unwrap();
    let received = received.unwrap();
    assert_eq!((received.len(), at), (1, due));
    assert_eq!((received[0].attempt, received[0].message.body.as_bytes()), (1, &b"x"[..]));
}

#[tokio::test]
async fn receive_hears_of_a_message_that_is_sent_while_it_waits() {
    let bench = Bench::start().await;
    let duly = bench.duly.clone();
    let receiver = tokio::spawn(async move { duly.receive("order", waiting(20)).await });
    bench.pass(millis(1_234)).await;
    bench.send(Message::to("order")).await;
    bench.calm().await;
    assert_eq!(receiver.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn receive_gives_an_empty_list_after_its_wait() {
    let bench = Bench::start().await;
    let duly = bench.duly.clone();
    let receiver = tokio::spawn(async move { duly.receive("order", waiting(20)).await });
    bench.pass(millis(19_999)).await;
    assert!(!receiver.is_finished());
    bench.pass(millis(1)).await;
    assert_eq!(receiver.await.unwrap().unwrap().len(), 0);
}

#[tokio::test]
async fn an_acknowledged_message_is_done_and_a_second_acknowledgement_lost() {
    let bench = Bench::start().await;
    let id = bench.send(Message::to("order")).await;
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    let receipts = [received[0].receipt.clone()];
    assert_eq!(bench.duly.ack(&receipts).await.unwrap(), [Settled::Done]);
    assert_eq!(bench.duly.ack(&receipts).await.unwrap(), [Settled::Lost]);
    assert_eq!(bench.record(&id).await.state, State::Delivered);
    assert_eq!(bench.duly.ack(&["rubbish"]).await.unwrap_err().code(), "bad_receipt");
}

#[tokio::test]
async fn nack_gives_the_message_again_after_its_delay_until_its_attempts_are_used_up() {
    let bench = Bench::start().await;
    let retry = RetryOverride { attempts: Some(3), ..RetryOverride::default() };
    let id = bench.send(Message::to("order").retry(retry)).await;
    for (attempt, delay) in [(1, None), (2, Some(seconds(7))), (3, None)] {
        let received = bench.duly.receive("order", Receive::default()).await.unwrap();
        assert_eq!(received[0].attempt, attempt);
        assert_eq!(bench.duly.nack(&[&received[0].receipt], delay).await.unwrap(), [Settled::Done]);
        if attempt < 3 {
            bench.pass(delay.unwrap_or(seconds(1)) - millis(1)).await;
            assert_eq!(bench.duly.receive("order", Receive::default()).await.unwrap().len(), 0);
            // One that was asked for is exact, the other up to a quarter longer.
            bench.pass(millis(if delay.is_some() { 1 } else { 251 })).await;
        }
    }
    let record = bench.record(&id).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Exhausted)));
}

#[tokio::test]
async fn extend_keeps_the_message_and_without_it_the_lease_ends() {
    let bench = Bench::start().await;
    bench.send(Message::to("order")).await;
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    let receipts = [received[0].receipt.clone()];
    bench.pass(seconds(25)).await;
    assert_eq!(bench.duly.extend(&receipts, seconds(30)).await.unwrap(), [Settled::Done]);
    bench.pass(seconds(25)).await;
    assert_eq!(bench.duly.receive("order", Receive::default()).await.unwrap().len(), 0);
    bench.pass(seconds(8)).await;
    assert_eq!(bench.duly.receive("order", Receive::default()).await.unwrap().len(), 0, "it waits");
    bench.pass(seconds(6)).await;
    let again = bench.duly.receive("order", Receive::default()).await.unwrap();
    assert_eq!(again[0].attempt, 2);
    assert_eq!(bench.duly.ack(&receipts).await.unwrap(), [Settled::Lost]);
}

#[tokio::test]
async fn what_is_too_late_is_not_handed_out_but_dead() {
    let bench = Bench::start().await;
    let late = bench.send(Message::to("order").max_lateness(seconds(10))).await;
    bench.pass(minutes(1)).await;
    let good = bench.send(Message::to("order")).await;
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    assert_eq!(received.iter().map(|r| &r.message.id).collect::<Vec<_>>(), [&good]);
    assert_eq!(bench.record(&late).await.reason, Some(DeadReason::Expired));
    bench.duly.ack(&[&received[0].receipt]).await.unwrap();
    bench.send(Message::to("order").max_lateness(seconds(10))).await;
    bench.pass(minutes(1)).await;
    assert_eq!(bench.duly.receive("order", Receive::default()).await.unwrap().len(), 0);
    assert_eq!(bench.duly.totals().await.unwrap().dead, 2);
}

#[tokio::test]
async fn a_receipt_outlives_the_process() {
    let bench = Bench::start().await;
    let id = bench.send(Message::to("order")).await;
    let received = bench.duly.receive("order", waiting(0)).await.unwrap();
    let Bench { duly, clock, store } = bench;
    drop(duly);
    store.restart(duly::Clock::now(&clock));
    let bench = Bench::on(store, clock, |builder| builder).await;
    assert_eq!(bench.duly.ack(&[&received[0].receipt]).await.unwrap(), [Settled::Done]);
    assert_eq!(bench.record(&id).await.state, State::Delivered);
}

#[tokio::test]
async fn a_receiver_that_leaves_lets_the_next_one_look_in_its_stead() {
    let bench = Bench::start().await;
    bench.pass(millis(100)).await;
    let duly = bench.duly.clone();
    let leaves = tokio::spawn(async move { duly.receive("order", waiting(20)).await });
    bench.calm().await;
    let duly = bench.duly.clone();
    let stays = tokio::spawn(async move { (duly.receive("order", waiting(20)).await, duly.now()) });
    bench.calm().await;
    let due = bench.in_ms(700);
    bench.send(Message::to("order").at(due)).await;
    bench.calm().await;
    leaves.abort();
    bench.pass(millis(700)).await;
    let (received, at) = stays.await.unwrap();
    assert_eq!((received.unwrap().len(), at), (1, due));
}

#[tokio::test]
async fn a_receiver_hears_of_a_lease_that_ended() {
    let bench = Bench::start().await;
    bench.send(Message::to("order")).await;
    let lease = Receive { lease: seconds(5), ..Receive::default() };
    assert_eq!(bench.duly.receive("order", lease).await.unwrap().len(), 1);
    let duly = bench.duly.clone();
    let receiver = tokio::spawn(async move { duly.receive("order", waiting(20)).await });
    // As after a failed try, it comes five seconds later, and up to a quarter more.
    bench.pass(millis(9_900)).await;
    assert!(!receiver.is_finished());
    bench.pass(millis(1_450)).await;
    assert_eq!(receiver.await.unwrap().unwrap()[0].attempt, 2);
}

/// A clock that passes over a minute after each of many looks: a process that stands still.
struct Stalling {
    clock: ManualClock,
    stalls: AtomicU32,
}

impl Clock for Stalling {
    fn now(&self) -> Now {
        let now = self.clock.now();
        if self.stalls.load(Ordering::Relaxed) > 0 {
            self.stalls.fetch_sub(1, Ordering::Relaxed);
            self.clock.advance(minutes(1));
        }
        now
    }

    fn sleep_until(&self, until: Monotonic) -> Sleep {
        self.clock.sleep_until(until)
    }
}

#[tokio::test]
async fn what_outlived_its_lease_during_the_claim_is_not_handed_out() {
    let clock = Arc::new(Stalling { clock: ManualClock::new(), stalls: AtomicU32::new(0) });
    let store = Arc::new(MemoryStore::new());
    // It only accepts: nothing else looks at the clock, and so makes it stall, in between.
    let builder = Duly::builder().store(store).clock(clock.clone()).deliver(false);
    let duly = builder.start().await.unwrap();
    duly.send(Message::to("orders").text("once")).await.unwrap();
    clock.stalls.store(1_000, Ordering::Relaxed);
    assert!(duly.receive("orders", Receive::default()).await.unwrap().is_empty());
}

/// The messages are there, and the receiver is dropped before it looks: nothing is lost with it.
#[tokio::test]
async fn what_a_receiver_did_not_take_out_any_more_goes_back_and_counts_no_try() {
    let bench = Bench::start().await;
    bench.send(Message::to("order")).await;
    {
        let receive = bench.duly.receive("order", Receive::default());
        tokio::pin!(receive);
        let begun = std::future::poll_fn(|cx| std::task::Poll::Ready(receive.as_mut().poll(cx))).await;
        assert!(begun.is_pending());
        bench.calm().await;
        assert_eq!(bench.duly.totals().await.unwrap().in_flight, 1, "it is claimed");
    }
    bench.calm().await;
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    assert_eq!(received.iter().map(|r| r.attempt).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn a_receive_gives_no_more_bytes_than_fit_and_the_next_one_the_rest() {
    const MEGABYTE: usize = 1024 * 1024;
    let bench = Bench::start().await;
    for _ in 0..20 {
        bench.send(Message::to("order").bytes(vec![0; MEGABYTE])).await;
    }
    let all = Receive { max: 1_000, ..Receive::default() };
    let first = bench.duly.receive("order", all.clone()).await.unwrap();
    let rest = bench.duly.receive("order", all).await.unwrap();
    assert_eq!((first.len(), rest.len()), (16, 4));
}

#[tokio::test]
async fn a_receive_from_many_queues_gives_no_more_bytes_than_one_from_a_single_queue() {
    let bench = Bench::start().await;
    let queues = ["a", "b", "c"];
    for queue in queues {
        // Empty bodies: properties count as well, and each queue has more than fits.
        for _ in 0..70 {
            let large = (0..63).fold(Message::to(queue), |message, n| {
                message.property(format!("p{n}"), "v".repeat(Properties::VALUE_MAX))
            });
            bench.send(large).await;
        }
    }
    let all = Receive { max: 1_000, ..Receive::default() };
    let mut received = BTreeSet::new();
    while received.len() < 3 * 70 {
        let some = bench.duly.receive_any(&queues, all.clone()).await.unwrap();
        let bytes: usize = some.iter().map(|received| received.message.bytes()).sum();
        assert!(!some.is_empty() && bytes <= Claim::BYTES_MAX, "{bytes} bytes in {} messages", some.len());
        assert!(some.iter().all(|received| received.attempt == 1), "what did not fit was released");
        received.extend(some.into_iter().map(|received| received.message.id));
        bench.calm().await;
    }
}
