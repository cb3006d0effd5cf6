//! Tasks: a queue, an id and a time (C1, C2, C10).

use duly::{Changed, Settled, State, minutes, seconds};

use crate::bench::Bench;

#[tokio::test]
async fn tasks_are_looked_at_without_taking_them_and_taken_with_a_receipt() {
    let bench = Bench::start().await;
    bench.duly.add_task("order", "1", bench.in_ms(1_000)).await.unwrap();
    bench.duly.add_task_with_delay("order", "2", seconds(2)).await.unwrap();
    bench.duly.add_task_with_delay("order", "3", minutes(2)).await.unwrap();
    assert_eq!(bench.duly.ready_tasks("order", 10).await.unwrap(), Vec::<String>::new());
    bench.pass(seconds(2)).await;
    assert_eq!(bench.duly.ready_tasks("order", 10).await.unwrap(), ["1", "2"]);
    assert_eq!(bench.duly.ready_tasks("order", 1).await.unwrap(), ["1"]);

    let taken = bench.duly.poll_ready_tasks("order", 10).await.unwrap();
    assert_eq!(taken.iter().map(|task| task.task_id()).collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(bench.duly.ready_tasks("order", 10).await.unwrap(), Vec::<String>::new());
    assert_eq!(bench.duly.poll_ready_tasks("order", 10).await.unwrap().len(), 0);
    assert_eq!(bench.duly.ack(&[&taken[0].receipt]).await.unwrap(), [Settled::Done]);

    // The other was never acknowledged: it comes again five seconds after its lease has ended, and was not lost.
    bench.pass(seconds(37)).await;
    let again = bench.duly.poll_ready_tasks("order", 10).await.unwrap();
    assert_eq!(again.iter().map(|task| (task.task_id(), task.attempt)).collect::<Vec<_>>(), [("2", 2)]);
}

#[tokio::test]
async fn one_task_id_is_there_once_per_queue() {
    let bench = Bench::start().await;
    let first = bench.duly.add_task("order", "42", bench.in_ms(1_000)).await.unwrap();
    assert_eq!(first.id.as_str(), "order:42");
    assert!(bench.duly.add_task("order", "42", bench.in_ms(9_000)).await.unwrap().duplicate);
    assert!(!bench.duly.add_task("refund", "42", bench.in_ms(1_000)).await.unwrap().duplicate);
    assert_eq!(bench.duly.totals().await.unwrap().accepted, 2);
}

#[tokio::test]
async fn a_task_id_belongs_to_its_queue_whatever_the_queue_is_called() {
    let bench = Bench::start().await;
    for (queue, id) in [("a", "b:c"), ("a:b", "c"), ("订单", "42"), ("shop/order", "42")] {
        let added = bench.duly.add_task(queue, id, bench.duly.now()).await.unwrap();
        assert!(!added.duplicate, "{queue} {id}");
        assert!(bench.duly.add_task(queue, id, bench.duly.now()).await.unwrap().duplicate);
        assert_eq!(bench.duly.ready_tasks(queue, 10).await.unwrap(), [id]);
    }
    let taken = bench.duly.poll_ready_tasks("a:b", 10).await.unwrap();
    assert_eq!(taken.iter().map(|task| task.task_id()).collect::<Vec<_>>(), ["c"]);
    assert!(matches!(bench.duly.cancel_task("a", "b:c").await.unwrap(), Changed::Done { .. }));
    assert_eq!(bench.duly.ready_tasks("订单", 10).await.unwrap(), ["42"]);
}

#[tokio::test]
async fn a_task_is_taken_back_before_it_is_due() {
    let bench = Bench::start().await;
    bench.duly.add_task_with_delay("order", "42", seconds(5)).await.unwrap();
    let done = Changed::Done { maybe_delivered: false };
    assert_eq!(bench.duly.cancel_task("order", "42").await.unwrap(), done);
    let record = bench.duly.get("order:42").await.unwrap().unwrap();
    assert_eq!(record.state, State::Cancelled);
}
