//! Verbs about messages.

use duly_client::wire::{
    Accepted, BulkAnswer, Cancelled, Message, Page, ReceiptResults, Received, Rescheduled,
};

use super::Server;

#[test]
fn a_message_is_sent_seen_and_received() {
    let server = Server::start();
    let id = server.ok(&["send", "order", "hello", "--in", "200ms", "--id", "a", "-p", "tenant=x"]);
    assert_eq!(id, "a\n");
    let message: Message = server.json(&["get", "a"]);
    assert_eq!((message.state.as_str(), message.content.body.as_deref()), ("pending", Some("hello")));
    assert_eq!(message.content.properties["tenant"], "x");
    let page: Page = server.json(&["ls", "--topic", "order"]);
    assert_eq!(page.messages.len(), 1);

    let received: Received = server.json(&["receive", "order", "--wait", "10s", "--ack"]);
    assert_eq!(received.messages[0].body.as_deref(), Some("hello"));
    let message: Message = server.json(&["get", "a"]);
    assert_eq!(message.state, "delivered");
    let printed = server.ok(&["get", "a"]);
    assert!(printed.contains("delivered"), "{printed}");
    let accepted = message.times.accepted_at.unwrap();
    assert!(
        printed.lines().any(|line| line.starts_with("accepted ") && line.ends_with(&accepted)),
        "{printed}"
    );
    assert!(server.ok(&["ls"]).starts_with("ID "));
}

#[test]
fn the_same_message_again_is_a_duplicate() {
    let server = Server::start();
    let send = ["send", "order", "hello", "--id", "a", "--in", "1h"];
    let first: Accepted = server.json(&send);
    let again: Accepted = server.json(&send);
    assert!(!first.duplicate && again.duplicate);
    let sent_at = |when: &[&str]| server.run(&[&["send", "order", "hello", "--id", "a"], when].concat());
    let same = sent_at(&["--at", &first.deliver_at]);
    assert!(same.words.ends_with("known before: nothing changed\n"), "{same:?}");
    let later = sent_at(&["--in", "2h"]);
    assert!(later.words.ends_with("known before: nothing changed, and its first time stands\n"), "{later:?}");
    assert_eq!(server.json::<Message>(&["get", "a"]).times.deliver_at, first.deliver_at);
}

#[test]
fn a_body_may_be_text_json_or_bytes() {
    let server = Server::start();
    let sent = |args: &[&str], input: &[u8]| {
        let run = server.run_with(&[&["send", "t", "--in", "1h"], args].concat(), input);
        assert_eq!(run.code, 0, "{run:?}");
        server.json::<Message>(&["get", run.out.trim()])
    };
    assert_eq!(sent(&["-"], b"from stdin\n").content.body.as_deref(), Some("from stdin\n"));
    assert_eq!(sent(&["{ \"a\": 1 }", "--json"], b"").content.body.as_deref(), Some("{\"a\":1}"));
    assert_eq!(sent(&["-"], &[0xff, 0x00]).content.body_base64.as_deref(), Some("/wA="));
    assert_eq!(sent(&[], b"").content.body.as_deref().unwrap_or_default(), "");
}

#[test]
fn every_option_of_send_reaches_the_server() {
    let server = Server::start();
    let at = server.json::<Accepted>(&["send", "t", "b", "--in", "1h"]).deliver_at;
    let args = ["send", "t", "b", "--at", &at, "--tag", "T", "--key", "K", "--priority", "7"];
    let id = server.ok(&[&args[..], &["--max-lateness", "1h", "--attempts", "3"]].concat());
    let message: Message = server.json(&["get", id.trim()]);
    assert_eq!((message.tag.as_deref(), message.key.as_deref()), (Some("T"), Some("K")));
    assert_eq!((message.priority, message.times.deliver_at.as_str()), (7, at.as_str()));
    let level: Accepted = server.json(&["send", "t", "b", "--level", "P0"]);
    assert_eq!(level.state, "pending");
}

#[test]
fn what_waits_can_be_moved_fired_and_cancelled() {
    let server = Server::start();
    for id in ["a", "b", "c"] {
        server.ok(&["send", "order", "x", "--id", id, "--in", "1h"]);
    }
    let later = server.json::<Accepted>(&["send", "other", "x", "--in", "2h"]);
    let moved: Rescheduled = server.json(&["reschedule", "a", "--at", &later.deliver_at_ms.to_string()]);
    assert_eq!(moved.deliver_at, later.deliver_at);
    let fired: Rescheduled = server.json(&["fire", "b"]);
    assert_eq!(fired.id, "b");
    let received: Received = server.json(&["receive", "order", "--wait", "10s", "--ack"]);
    assert_eq!(received.messages[0].id, "b");
    let cancelled: Cancelled = server.json(&["cancel", "c"]);
    assert_eq!(cancelled.state, "cancelled");
    assert_eq!(server.ok(&["cancel", "a"]), "a cancelled\n");
}

#[test]
fn ids_come_from_stdin_and_one_bad_one_does_not_stop_the_others() {
    let server = Server::start();
    for id in ["a", "b"] {
        server.ok(&["send", "order", "x", "--id", id, "--in", "1h"]);
    }
    let run = server.run_with(&["cancel", "-"], b"a\nnobody\n\nb\n");
    assert_eq!((run.code, run.out.as_str()), (3, "a cancelled\nb cancelled\n"), "{run:?}");
    assert!(run.words.contains("nobody") && run.words.contains("1 of 3"), "{run:?}");
    // Unknown and too late together: the worse code is told.
    assert_eq!(server.run_with(&["fire", "-"], b"a\nnobody\n").code, 4);
    let run = server.run_with(&["get", "-", "-o", "json"], b"a\nb\n");
    let printed: Vec<Message> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(printed.len(), 2);
}

#[test]
fn many_at_once_are_counted_first_and_need_a_yes() {
    let server = Server::start();
    for id in ["a", "b"] {
        server.ok(&["send", "order", "x", "--id", id, "--in", "1h"]);
    }
    let count: BulkAnswer = server.json(&["cancel", "--topic", "order", "--dry-run"]);
    assert!(count.dry_run && count.matched == 2 && count.done == 0);
    for verb in
        [&["cancel", "--all"][..], &["fire", "--topic", "order"], &["reschedule", "--all", "--in", "2h"]]
    {
        let run = server.run(verb);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.words.contains("2 messages") && run.words.contains("--yes"), "{run:?}");
    }
    let moved: BulkAnswer = server.json(&["reschedule", "--all", "--in", "2h", "--yes"]);
    assert_eq!(moved.done, 2);
    assert_eq!(server.ok(&["cancel", "--topic", "order", "--yes"]), "2 cancelled\n");
}

#[test]
fn one_call_receives_from_several_queues_and_acknowledges_what_it_gave() {
    let server = Server::start();
    for topic in ["a", "b", "other"] {
        for n in 0..2 {
            server.ok(&["send", topic, "x", "--id", &format!("{topic}{n}")]);
        }
    }
    let received: Received = server.json(&["receive", "a", "b", "--wait", "10s", "--max", "2"]);
    let mut topics: Vec<_> = received.messages.iter().map(|message| message.topic.as_str()).collect();
    topics.sort_unstable();
    assert_eq!(topics, ["a", "b"], "each queue has its share");
    let text = server.ok(&["receive", "a", "b", "--wait", "10s", "--ack"]);
    for (id, topic) in [("a1", "a"), ("b1", "b")] {
        assert!(text.contains(&format!("{id}  {topic}  attempt 1")), "{text}");
        assert_eq!(server.json::<Message>(&["get", id]).state, "delivered", "{id}");
    }
    let run = server.run(&["receive", "a", "b"]);
    assert_eq!((run.code, run.words.trim()), (0, "nothing is due"), "{run:?}");
    assert_eq!(server.run(&["receive"]).code, 2, "no queue was named");
}

#[test]
fn what_was_received_is_kept_given_back_or_acknowledged() {
    let server = Server::start();
    server.ok(&["send", "order", "x", "--id", "a"]);
    let receive = ["receive", "order", "--wait", "10s", "--max", "1"];
    let first = server.json::<Received>(&receive).messages.remove(0);
    let kept: ReceiptResults = server.json(&["extend", "order", &first.receipt, "--lease", "1m"]);
    assert_eq!(kept.results[0].outcome, "done");
    server.ok(&["nack", "order", &first.receipt, "--in", "10ms"]);
    let second = server.json::<Received>(&receive).messages.remove(0);
    assert_eq!((second.id.as_str(), second.attempt), ("a", 2));
    let run = server.run(&["ack", "order", &first.receipt]);
    assert_eq!(run.code, 4, "a receipt of the first try is lost: {run:?}");
    let run = server.run_with(&["ack", "order", "-"], second.receipt.as_bytes());
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(server.json::<Message>(&["get", "a"]).state, "delivered");

    server.ok(&["send", "order", "x", "--id", "b"]);
    let held = server.json::<Received>(&receive).messages.remove(0);
    let both = ["nack", "order", &held.receipt, "--dead", "--in", "1s"];
    assert_eq!(server.run(&both).code, 2, "a dead letter does not come again");
    server.ok(&["nack", "order", &held.receipt, "--error", "no such order", "--dead"]);
    assert!(server.ok(&["get", "b"]).contains("refused no such order"));
    let dead = server.ok(&["dead", "ls"]);
    assert!(dead.contains("no such order"), "{dead}");
}

#[test]
fn bodies_can_be_had_alone() {
    let server = Server::start();
    server.ok(&["send", "order", "just this"]);
    assert_eq!(server.ok(&["receive", "order", "--wait", "10s", "--ack", "--body-only"]), "just this\n");
    let run = server.run(&["receive", "order"]);
    assert_eq!((run.code, run.out.as_str()), (0, ""));
    assert!(run.words.contains("nothing is due"), "{run:?}");
}

#[test]
fn a_list_is_piped_into_a_verb_whole_or_with_a_word_that_there_is_more() {
    let server = Server::start();
    for n in 0..3 {
        server.ok(&["send", "order", "--id", &format!("m{n}"), "--in", "1h"]);
    }
    let cut = server.run(&["ls", "--limit", "2", "-o", "json"]);
    assert!(cut.words.contains("there are more"), "{cut:?}");
    let run = server.run_with(&["cancel", "-"], cut.out.as_bytes());
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("there are more") && run.out.lines().count() == 2, "{run:?}");
    let whole = server.run(&["ls", "--all", "-o", "json"]);
    let run = server.run_with(&["cancel", "-"], whole.out.as_bytes());
    assert_eq!((run.code, run.out.as_str()), (0, "m2 cancelled\n"), "{run:?}");
}

#[test]
fn a_change_of_many_is_done_in_parts_whatever_the_server_takes_at_once() {
    let server = Server::with(|config| config.limits.batch_max = 3);
    let ids: Vec<_> = (0..10).map(|n| format!("m{n}")).collect();
    for id in &ids {
        server.ok(&["send", "order", "--id", id, "--in", "1h"]);
    }
    let text = ids.join("\n");
    let run = server.run_with(&["cancel", "-", "--dry-run", "-o", "json"], text.as_bytes());
    assert_eq!(serde_json::from_str::<BulkAnswer>(&run.out).unwrap().matched, 10, "{run:?}");
    let moved: BulkAnswer = server.json(&["reschedule", "--topic", "order", "--in", "30m", "--yes"]);
    assert_eq!((moved.done, moved.more), (10, false));
    let fired: BulkAnswer = server.json(&["fire", "--topic", "order", "--yes"]);
    assert_eq!(fired.done, 10);
}

#[test]
fn dead_letters_are_listed_replayed_and_purged() {
    let server = Server::start();
    server.dead("a");
    let letters: Page = server.json(&["dead", "ls"]);
    assert_eq!((letters.messages[0].id.as_str(), letters.messages[0].state.as_str()), ("a", "dead"));
    assert!(server.ok(&["dead", "ls"]).contains("exhausted"));

    let replayed: BulkAnswer = server.json(&["dead", "replay", "a"]);
    assert_eq!(replayed.done, 1);
    let again: Received = server.json(&["receive", "order", "--wait", "10s", "--ack"]);
    assert_eq!(again.messages[0].id, "a");
    assert_eq!(server.run(&["dead", "replay", "nobody"]).code, 3);

    server.dead("b");
    let run = server.run(&["dead", "purge", "--all"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(server.json::<Page>(&["dead", "ls"]).messages.len(), 1, "nothing was purged unasked");
    assert_eq!(server.ok(&["dead", "purge", "--all", "--yes"]), "1 purged\n");
    assert!(server.json::<Page>(&["dead", "ls"]).messages.is_empty());
}

#[test]
fn what_cannot_be_meant_is_a_usage_error_and_reaches_no_server() {
    let server = Server::start();
    for args in [
        &["get", ""][..],
        &["cancel", "a", ""],
        &["receive", ""],
        &["ack", "", "r"],
        &["send", "t", "b", "-p", "a=1", "-p", "a=2"],
        &["tail", "--types", "accepted,nope"],
        &["ls", "--url", ""],
    ] {
        let run = server.run(args);
        assert_eq!(run.code, 2, "{args:?}: {run:?}");
    }
    let run = server.run_with(&["cancel", "-"], br#"{"messages":[{"id":5}]}"#);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("nothing was done") && !run.words.contains("enum"), "{run:?}");
    assert!(server.json::<Page>(&["ls"]).messages.is_empty());
}

#[test]
fn a_failure_of_all_does_not_speak_of_others_and_a_lost_receipt_may_be_settled() {
    let server = Server::start();
    let run = server.run(&["get", "a", "nope"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.words.contains("all 2 failed") && !run.words.contains("others"), "{run:?}");

    server.ok(&["send", "order", "x", "--id", "a"]);
    let received: Received = server.json(&["receive", "order", "--wait", "10s", "--max", "1"]);
    let ack = ["ack", "order", &received.messages[0].receipt];
    server.ok(&ack);
    let again = server.run(&ack);
    assert_eq!(again.code, 4, "{again:?}");
    assert!(again.words.contains("settled before"), "{again:?}");
}
