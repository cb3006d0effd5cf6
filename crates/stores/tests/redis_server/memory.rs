//! What a waiting message costs.

use duly_core::{Body, MessageId, Store};
use testkit::{block_on, servers::redis};

use crate::bed::{insert, message_in, ms, single};

const COUNT: u64 = 40_000;

#[test]
fn a_waiting_message_costs_no_more_than_was_promised() {
    if !redis::installed() {
        return;
    }
    for (topic, body_len) in
        [("order", 0), ("order", 64), ("order", 100), ("a-topic-of-27-bytes-exactly", 700)]
    {
        block_on(async {
            let (server, store) = single().await;
            let used = || {
                let info: String = server.run(&["INFO", "memory"]);
                let line = info.lines().find_map(|line| line.strip_prefix("used_memory_dataset:")).unwrap();
                line.trim().parse::<u64>().unwrap()
            };
            let before = used();
            let mut raw = 0;
            for part in 0..COUNT / 1000 {
                let batch = (0..1000).map(|n| {
                    let number = part * 1000 + n;
                    let mut message = message_in(topic, "x", 3_600_000 + number * 37 % 86_400_000);
                    let random = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
                    message.id = MessageId::generate(ms(part), random);
                    message.body = Body::bytes(vec![b'x'; body_len]);
                    // Id, sink, topic, body, due time, priority, and when it was accepted.
                    raw += message.id.as_str().len() + "queue".len() + topic.len() + body_len + 8 + 1 + 8;
                    message
                });
                insert(&store, batch.collect()).await.unwrap();
            }
            let cost = (used() - before) / COUNT;
            // Below 64 bytes of body the classes of the allocator decide, and a few bytes more are allowed.
            let promised = raw as u64 / COUNT * 13 / 10 + if body_len < 64 { 208 } else { 200 };
            println!("{topic}, body of {body_len}: {cost} bytes a message, {promised} promised");
            assert!(cost <= promised, "{cost} bytes a message, and {promised} are promised");
            assert_eq!(store.totals().await.unwrap().pending, COUNT);
        });
    }
}
