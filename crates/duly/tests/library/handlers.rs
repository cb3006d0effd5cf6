//! Handlers (C3–C8).

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use duly::{
    Clock, DeadReason, Error, HandlerOptions, Message, State, Task, Timestamp, Verdict, millis, minutes,
    seconds,
};

use crate::bench::Bench;

/// What handlers saw: id, attempt and the time.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<(String, u32, Timestamp)>>>);

impl Recorded {
    fn note(&self, task: &Task, clock: &dyn Clock) {
        let entry = (task.id().to_owned(), task.attempt(), clock.now().wall());
        self.0.lock().unwrap().push(entry);
    }

    fn all(&self) -> Vec<(String, u32, Timestamp)> {
        self.0.lock().unwrap().clone()
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Handles `queue` with one answer for all.
async fn answering<A>(
    bench: &Bench,
    queue: &str,
    answer: impl Fn(&Task) -> A + Send + Sync + 'static,
) -> Recorded
where
    A: duly::HandlerResult + Send + 'static,
{
    let seen = Recorded::default();
    let (noted, clock) = (seen.clone(), bench.clock.clone());
    let handler = move |task: Task| {
        noted.note(&task, &clock);
        let answer = answer(&task);
        async move { answer }
    };
    bench.duly.handle(queue, handler).attempts(3).start().await.unwrap();
    seen
}

#[tokio::test]
async fn a_handler_gets_its_task_at_its_time_with_its_bare_id() {
    let bench = Bench::start().await;
    let seen = answering(&bench, "order", |_| Verdict::Done).await;
    let due = bench.in_ms(90_000);
    bench.duly.add_task("order", "42", due).await.unwrap();
    bench.pass(minutes(2)).await;
    assert_eq!(seen.all(), [("42".to_owned(), 1, due)]);
    assert_eq!(bench.duly.get("order:42").await.unwrap().unwrap().state, State::Delivered);
}

#[tokio::test]
async fn several_queues_have_one_handler_each() {
    let bench = Bench::start().await;
    let (orders, mails) = (answering(&bench, "order", |_| ()).await, answering(&bench, "mail", |_| ()).await);
    bench.send(Message::to("order")).await;
    bench.send(Message::to("mail")).await;
    bench.send(Message::to("mail")).await;
    bench.pass(seconds(1)).await;
    assert_eq!((orders.len(), mails.len()), (1, 2));
    let second = bench.duly.handle("order", |_| async {}).start().await;
    assert!(matches!(second, Err(Error::HandlerExists(_))));
}

#[tokio::test]
async fn handling_starts_and_stops_at_run_time() {
    let bench = Bench::start().await;
    bench.send(Message::to("order")).await;
    bench.pass(seconds(5)).await;
    assert!(!bench.duly.is_handling("order"));
    let seen = answering(&bench, "order", |_| Verdict::Done).await;
    bench.calm().await;
    assert!(bench.duly.is_handling("order"));
    assert_eq!(seen.len(), 1);

    bench.duly.stop_handling("order").await.unwrap();
    assert!(!bench.duly.is_handling("order"));
    bench.send(Message::to("order")).await;
    bench.pass(seconds(5)).await;
    assert_eq!(seen.len(), 1);
    assert!(matches!(bench.duly.stop_handling("order").await, Err(Error::NoHandler(_))));

    let again = answering(&bench, "order", |_| Verdict::Done).await;
    bench.calm().await;
    assert_eq!(again.len(), 1);
}

#[tokio::test]
async fn a_handler_that_says_not_now_is_asked_again_after_a_second_and_then_later() {
    let bench = Bench::start().await;
    let start = bench.duly.now();
    let seen = answering(&bench, "order", |_| Verdict::retry()).await;
    bench.duly.add_task("order", "42", start).await.unwrap();
    bench.pass(minutes(5)).await;
    let at = |ms| start.saturating_add(millis(ms));
    let seen = seen.all();
    assert_eq!(seen[0], ("42".into(), 1, at(0)));
    assert!(seen[1].1 == 2 && (at(1_000)..=at(1_250)).contains(&seen[1].2), "{seen:?}");
    assert!((seen.len(), seen[2].1) == (3, 3) && (at(2_000)..=at(3_250)).contains(&seen[2].2), "{seen:?}");
    let record = bench.duly.get("order:42").await.unwrap().unwrap();
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Exhausted)));
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_is_tried_again_after_five_seconds_and_then_later() {
    let bench = Bench::start().await;
    let start = bench.duly.now();
    let failing = answering(&bench, "fails", |_| Err::<Verdict, _>("the card was declined")).await;
    let panicking = answering(&bench, "panics", |task| {
        if task.attempt() < 3 {
            panic!("attempt {}", task.attempt());
        }
    })
    .await;
    bench.duly.add_task("fails", "1", start).await.unwrap();
    bench.duly.add_task("panics", "1", start).await.unwrap();
    bench.pass(minutes(1)).await;
    let at = |ms| start.saturating_add(millis(ms));
    for seen in [failing, panicking] {
        let times: Vec<_> = seen.all().iter().map(|(_, _, at)| *at).collect();
        assert!(times[0] == at(0) && (at(5_000)..=at(6_250)).contains(&times[1]), "{times:?}");
        assert!(times.len() == 3 && (at(10_000)..=at(16_250)).contains(&times[2]), "{times:?}");
    }
    let failed = bench.duly.get("fails:1").await.unwrap().unwrap();
    assert_eq!(failed.state, State::Dead);
    assert!(failed.history.iter().all(|attempt| attempt.detail == "the card was declined"));
    let panicked = bench.duly.get("panics:1").await.unwrap().unwrap();
    assert_eq!(panicked.state, State::Delivered);
    assert_eq!(panicked.history[0].detail, "panicked: attempt 1");
}

#[tokio::test]
async fn the_waits_and_the_limit_can_be_set() {
    let options = HandlerOptions { again: seconds(10), attempts: 2, ..HandlerOptions::default() };
    let bench = Bench::with(|builder| builder.handlers(options)).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handler = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Verdict::retry() }
    };
    bench.duly.handle("order", handler).failed(seconds(1)).start().await.unwrap();
    bench.send(Message::to("order")).await;
    bench.pass(millis(9_999)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    bench.pass(minutes(5)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn no_more_handlers_run_at_once_than_allowed() {
    let bench = Bench::start().await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (counts, highest, waits) = (running.clone(), most.clone(), gate.clone());
    let handler = move |_| {
        let (counts, highest, waits) = (counts.clone(), highest.clone(), waits.clone());
        async move {
            highest.fetch_max(counts.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            waits.acquire().await.unwrap().forget();
            counts.fetch_sub(1, Ordering::SeqCst);
        }
    };
    bench.duly.handle("order", handler).concurrency(8).batch(20).start().await.unwrap();
    bench.duly.send_batch((0..100).map(|_| Message::to("order"))).await;
    bench.pass(seconds(1)).await;
    assert_eq!(running.load(Ordering::SeqCst), 8);
    gate.add_permits(100);
    bench.pass(seconds(1)).await;
    assert_eq!(most.load(Ordering::SeqCst), 8);
    assert_eq!(bench.duly.totals().await.unwrap().delivered, 100);
}

#[tokio::test]
async fn a_lease_is_renewed_while_the_handler_runs_and_a_hanging_one_is_ended() {
    let bench = Bench::start().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handler = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        pending::<()>()
    };
    bench.duly.handle("order", handler).timeout(minutes(2)).start().await.unwrap();
    let id = bench.send(Message::to("order")).await;
    bench.pass(seconds(119)).await;
    assert_eq!((calls.load(Ordering::SeqCst), bench.record(&id).await.state), (1, State::InFlight));
    bench.pass(seconds(1)).await;
    let record = bench.record(&id).await;
    assert_eq!((record.state, record.attempts), (State::Pending, 1));
    assert_eq!(record.history[0].detail, "no answer within 120s");
    bench.pass(millis(6_250)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_handler_that_lost_its_lease_is_told_and_its_result_ignored() {
    let bench = Bench::start().await;
    let (reported, finish) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Notify::new()));
    let (counted, finished) = (reported.clone(), finish.clone());
    let handler = move |task: Task| {
        let (counted, finished) = (counted.clone(), finished.clone());
        async move {
            task.lease_lost().await;
            assert!(task.is_lease_lost());
            counted.fetch_add(1, Ordering::SeqCst);
            finished.notified().await;
        }
    };
    bench.duly.handle("order", handler).start().await.unwrap();
    let id = bench.send(Message::to("order")).await;
    bench.pass(seconds(1)).await;
    // As if this process had been away for so long that its leases were given to somebody else.
    bench.clock.advance(minutes(1));
    use duly::Store;
    bench.store.sweep(bench.clock.now(), &[]).await.unwrap();
    bench.calm().await;
    bench.pass(seconds(3)).await;
    assert!(reported.load(Ordering::SeqCst) >= 1);
    finish.notify_waiters();
    bench.calm().await;
    assert_ne!(bench.record(&id).await.state, State::Delivered);
}

#[tokio::test]
async fn a_hanging_queue_adds_no_lateness_to_another() {
    let bench = Bench::start().await;
    bench.duly.handle("hangs", |_| pending::<()>()).start().await.unwrap();
    let seen = answering(&bench, "order", |_| Verdict::Done).await;
    for _ in 0..500 {
        bench.send(Message::to("hangs")).await;
    }
    let mut want = Vec::new();
    for second in 1..=60 {
        let due = bench.in_ms(second * 1_000);
        bench.duly.add_task("order", &second.to_string(), due).await.unwrap();
        want.push((second.to_string(), 1, due));
    }
    bench.pass(seconds(60)).await;
    assert_eq!(seen.all(), want);
}
