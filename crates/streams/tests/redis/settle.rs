//! D3: entries by their ids.

use std::time::Duration;

use duly_streams::{Entry, Settings, Settled};
use tokio::sync::mpsc;

use crate::{Order, next, quick, server::both, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_acknowledged_retried_or_given_up_by_its_id() {
    for server in both() {
        // They fail once and then wait for long.
        let retry = duly_streams::Retry {
            min: Duration::from_secs(600),
            max: Duration::from_secs(600),
            ..Default::default()
        };
        let streams = server.connect(Settings { retry, ..quick() }).await;
        let (reported, mut telling) = mpsc::unbounded_channel();
        let moody = move |order: Entry<Order>| {
            let _ = reported.send((order.value.number, order.attempt()));
            async move { if order.attempt() == 1 { Err("not today") } else { Ok(()) } }
        };
        streams.listener("order", moody).start().await.unwrap();
        let mut ids = Vec::new();
        for number in 0..3 {
            ids.push(streams.send("order", &Order { number }).await.unwrap());
            assert_eq!(next(&mut telling).await, (number, 1));
        }
        let group = streams.group("order", "duly-streams").unwrap();
        let waits = || {
            let count: usize =
                server.of("order").run(&["ZCARD", "{order}:duly-streams:due:normal:duly-streams"]);
            count
        };
        wait_until("all have failed", || waits() == 3);

        assert_eq!(group.ack(&ids[0]).await.unwrap(), Settled::Done);
        assert_eq!(group.ack(&ids[0]).await.unwrap(), Settled::NotPending);
        assert_eq!(group.retry(&ids[1], Duration::ZERO).await.unwrap(), Settled::Done);
        assert_eq!(next(&mut telling).await, (1, 2), "the count is not touched");
        assert_eq!(group.move_to_dlq(&ids[2], "by hand").await.unwrap(), Settled::Done);
        assert_eq!(group.move_to_dlq(&ids[2], "by hand").await.unwrap(), Settled::NotPending);
        assert_eq!(group.retry(&ids[2], Duration::ZERO).await.unwrap(), Settled::NotPending);

        wait_until("all are settled", || server.pending("order", "duly-streams") == 0);
        let letters = server.entries(&server.dead("order"));
        assert_eq!(letters.len(), 1);
        assert_eq!(
            (letters[0]["duly-dead-reason"].as_str(), letters[0]["duly-dead-id"].as_str()),
            ("by hand", ids[2].as_str())
        );
        wait_until("nothing is kept of them", || server.beside("order").is_empty());
        streams.shutdown().await.unwrap();
    }
}
