//! A process that dies with messages in hand.

use std::sync::{Arc, Mutex};

use duly::{Clock, DeadReason, Message, State, Task, minutes, seconds};

use crate::bench::Bench;

/// Handles `order` like this: `poison` takes the process down, whatever runs beside it.
async fn start(bench: &Bench, crashed: &Arc<Mutex<bool>>, done: &Arc<Mutex<Vec<(String, u32)>>>) {
    let (crashed, done) = (crashed.clone(), done.clone());
    let handler = move |task: Task| {
        let (crashed, done) = (crashed.clone(), done.clone());
        async move {
            if task.id() == "poison" {
                *crashed.lock().unwrap() = true;
            }
            if *crashed.lock().unwrap() {
                // The process is gone: nobody gets any further.
                std::future::pending::<()>().await;
            }
            done.lock().unwrap().push((task.id().to_owned(), task.attempt()));
        }
    };
    bench.duly.handle("order", handler).attempts(3).start().await.unwrap();
}

#[tokio::test]
async fn a_task_that_kills_the_process_is_a_dead_letter_at_its_limit_and_its_neighbours_are_not() {
    let mut bench = Bench::start().await;
    let (crashed, done) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(Vec::new())));
    let due = bench.in_ms(1_000);
    bench.send(Message::to("order").id("order:poison").at(due).priority(9)).await;
    for n in 0..10 {
        bench.send(Message::to("order").id(format!("order:{n}")).at(due)).await;
    }
    let mut crashes = 0;
    for _ in 0..10 {
        start(&bench, &crashed, &done).await;
        // What the last process lost waits as after a failed try.
        bench.pass(seconds(15)).await;
        if !*crashed.lock().unwrap() {
            break;
        }
        crashes += 1;
        let Bench { duly, clock, store } = bench;
        drop(duly);
        store.restart(clock.now());
        *crashed.lock().unwrap() = false;
        bench = Bench::on(store, clock, |builder| builder).await;
    }
    bench.pass(minutes(1)).await;
    assert!((3..=4).contains(&crashes), "{crashes}");
    let record = bench.duly.get("order:poison").await.unwrap().unwrap();
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Exhausted)));
    assert_eq!(done.lock().unwrap().len(), 10);
    let totals = bench.duly.totals().await.unwrap();
    assert_eq!((totals.delivered, totals.dead), (10, 1));
}
