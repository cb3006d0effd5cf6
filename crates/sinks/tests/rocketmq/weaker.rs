//! A master that is to have a slave, and has none; and that makes topics of more queues than we ask for.

use std::{sync::Arc, time::Duration};

use duly::SystemClock;
use duly_core::SinkErrorKind;
use duly_sinks::SinkConfig;
use testkit::servers::rocketmq::{Options, Rocketmq, installed};

use crate::{ids, one, sink_with, to};

#[tokio::test]
async fn a_message_without_its_second_copy_is_taken_once_and_the_receipt_says_so() {
    if !installed() {
        return;
    }
    let more = ["brokerRole=SYNC_MASTER", "inSyncReplicas=2", "slaveTimeout=300", "defaultTopicQueueNums=8"];
    let more = more.map(str::to_owned).to_vec();
    let servers = Rocketmq::with(Options { makes_topics: true, more, ..Options::default() });
    let sink = sink_with(&servers.namesrv(), "");
    let batch: Vec<_> = (10..26).map(|n| to("orders", &format!("m{n}"))).collect();
    for outcome in sink.deliver(&batch).await {
        let receipt = outcome.unwrap();
        assert!(receipt.ends_with(" FLUSH_SLAVE_TIMEOUT"), "{receipt}");
    }
    let strict = sink_with(&servers.namesrv(), "accept_weaker = false");
    let error = one(&strict, "orders", "strict").await.unwrap_err();
    assert_eq!((error.kind, &*error.detail), (SinkErrorKind::Throttled, "FLUSH_SLAVE_TIMEOUT"));
    let mut there: Vec<_> = (10..26).map(|n| format!("m{n}")).collect();
    there.push("strict".into());
    assert_eq!(ids(&servers, "orders").await, there, "each once, and none was rejected");

    let text = format!("kind = 'rocketmq'\nnamesrv = '{}'", servers.namesrv());
    let config: SinkConfig = toml::from_str(&text).unwrap();
    let remarks = config.inspect(Arc::new(SystemClock::new().unwrap()), Duration::from_secs(60), &[]).await;
    let says = |word: &str| remarks.iter().any(|remark| remark.detail.contains(word));
    assert!(says("no slave is known") && says("makes any topic"), "{remarks:?}");
}
