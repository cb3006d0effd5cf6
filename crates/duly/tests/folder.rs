//! A Duly in a folder: what was accepted is there after a restart.
#![cfg(test)]

use std::sync::Arc;

use duly::{Changed, Duly, Durability, ManualClock, Message, Receive, State, hours, seconds};

async fn open(folder: &tempfile::TempDir, clock: &ManualClock) -> Duly {
    Duly::builder().folder(folder.path()).clock(Arc::new(clock.clone())).start().await.unwrap()
}

#[tokio::test]
async fn what_was_accepted_is_there_after_a_restart() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let duly = open(&folder, &clock).await;
    assert_eq!(duly.durability(), Durability::Disk);
    let kept = duly.send(Message::to("order").text("kept").after(hours(1))).await.unwrap();
    let cancelled = duly.send(Message::to("order").after(hours(1))).await.unwrap();
    assert_eq!(duly.cancel(&cancelled).await.unwrap(), Changed::Done { maybe_delivered: false });
    duly.shutdown().await.unwrap();

    clock.advance(hours(2));
    let duly = open(&folder, &clock).await;
    let received = duly.receive("order", Receive { wait: seconds(0), ..Receive::default() }).await.unwrap();
    assert_eq!(received.iter().map(|r| &r.message.id).collect::<Vec<_>>(), [&kept.id]);
    assert_eq!(received[0].message.body.as_bytes(), b"kept");
    duly.ack(&[&received[0].receipt]).await.unwrap();
    assert_eq!(duly.get(&kept).await.unwrap().unwrap().state, State::Delivered);
    duly.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_folder_is_opened_by_one_at_a_time() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let first = open(&folder, &clock).await;
    let second = Duly::builder().folder(folder.path()).clock(Arc::new(clock.clone())).start().await;
    assert_eq!(second.unwrap_err().code(), "store_unavailable");
    first.shutdown().await.unwrap();
    open(&folder, &clock).await.shutdown().await.unwrap();
}

/// A receiver may go away at any point: what was being claimed for it is given back, and no try is counted.
#[tokio::test]
async fn a_receive_that_is_dropped_takes_nothing_along() {
    let folder = tempfile::tempdir().unwrap();
    let duly = Duly::open(folder.path()).await.unwrap();
    let want = duly::Receive { wait: duly::seconds(20), ..duly::Receive::default() };
    for _ in 0..50 {
        duly.send(Message::to("q")).await.unwrap();
        {
            let mut receive = std::pin::pin!(duly.receive("q", want.clone()));
            // Begun, and left before it ended.
            let begun =
                std::future::poll_fn(|cx| std::task::Poll::Ready(receive.as_mut().poll(cx).is_pending()));
            assert!(begun.await);
        }
        let received = duly.receive("q", want.clone()).await.unwrap();
        assert_eq!(received.iter().map(|received| received.attempt).collect::<Vec<_>>(), [1]);
        duly.ack(&[&received[0].receipt]).await.unwrap();
    }
    duly.shutdown().await.unwrap();
}
