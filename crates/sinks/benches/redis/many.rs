//! A great many messages and topics: nothing may hold Redis up for more than five milliseconds.

use std::time::Duration;

use duly::Clock;
use duly_core::{
    Lane, Store, Timestamp, Topic,
    store::{Claim, Holder},
};
use testkit::bench::report::Report;

use crate::{
    Arguments,
    bed::{SINK, Watch, info, insert, message, node, pause, server},
};

/// One in so many is due at once.
const DUE: usize = 10;

pub(crate) async fn waiting(report: &mut Report, arguments: &Arguments) {
    let redis = server();
    redis.run::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "5000"]);
    redis.run::<()>(&["CONFIG", "SET", "slowlog-max-len", "1000"]);
    let node = node(&redis, 1).await;
    node.duly.pause_sink(SINK).await.unwrap();
    let before = info(&redis, "memory", "used_memory_dataset");
    let start = node.clock.now().wall().as_millis();
    let (mut raw, later) = (0, 3_600_000);
    let all = (0..arguments.waiting).map(|n| {
        // Half of the topics are queues, half are streams; a tenth of each topic's messages is due now.
        let topic = n / DUE % arguments.topics;
        let sink = if topic.is_multiple_of(2) { "queue" } else { SINK };
        let due = if n.is_multiple_of(DUE) { start } else { start + later + (n as u64 * 37) % 86_400_000 };
        let insert =
            message(n, (sink, &format!("topic-{topic}")), Timestamp::from_millis(due), arguments.body);
        let message = &insert.message;
        // Id, sink, topic, body, due time, priority.
        raw += message.id.as_str().len() + sink.len() + message.topic.as_str().len() + arguments.body + 8 + 1;
        insert
    });
    let watch = Watch::start(&redis);
    insert(&node, all).await;
    let cost = watch.end(arguments.waiting);
    report.alone(
        format!("(e) {} over {} topics, insert", arguments.waiting, arguments.topics),
        cost.per_second,
        "msg/s",
    );
    report.alone("    Redis's processor", cost.redis_share * 100.0, "%");
    let held = (info(&redis, "memory", "used_memory_dataset") - before) / arguments.waiting as f64;
    report.beside(
        "    memory of a message, beside its fields",
        held,
        "bytes",
        raw as f64 / arguments.waiting as f64,
    );

    let lanes: Vec<Lane> = (0..arguments.topics)
        .step_by(2)
        .map(|topic| Lane::Queue(Topic::parse(&format!("topic-{topic}")).unwrap()))
        .collect();
    for _ in 0..10 {
        node.store.sweep(node.clock.now(), &lanes).await.unwrap();
    }
    let watch = Watch::start(&redis);
    let mut claimed = 0;
    for lane in lanes {
        let claim = Claim { lane, limit: 100, lease: Duration::from_secs(60), holder: Holder::Client };
        claimed += node.store.claim(node.clock.now(), claim).await.unwrap().messages.len();
    }
    report.alone("    claimed from all queues, one after the other", watch.end(claimed).per_second, "msg/s");

    let delivered = node.store.totals().await.unwrap().delivered;
    let due = arguments.waiting / DUE - claimed;
    let watch = Watch::start(&redis);
    node.duly.resume_sink(SINK).await.unwrap();
    while node.store.totals().await.unwrap().delivered - delivered < due as u64 {
        pause(Duration::from_millis(5)).await;
    }
    let cost = watch.end(due);
    report.alone(format!("    moved into {} streams", arguments.topics / 2), cost.per_second, "msg/s");
    report.alone("    Redis's processor", cost.redis_share * 100.0, "%");
    let slow: Vec<(u64, u64, u64, Vec<redis::Value>, String, String)> =
        redis.run(&["SLOWLOG", "GET", "1000"]);
    report.alone("    slower than 5 ms (SLOWLOG); 0 wanted", slow.len() as f64, "calls");
    for (_, _, micros, words, ..) in slow.iter().take(10) {
        let name = words.iter().take(2).map(|word| redis::from_redis_value::<String>(word.clone()).unwrap());
        eprintln!("    slow: {micros} us {}", name.collect::<Vec<_>>().join(" "));
    }
    node.duly.shutdown().await.unwrap();
}
