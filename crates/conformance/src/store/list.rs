//! Cases: looking.

use std::time::Duration;

use duly_core::{
    DeadReason, MessageId, Outcome, State, Timestamp,
    store::{Durability, Page, Query, Totals},
};

use super::{Lab, harness::*};

/// Properties of 4 KB of a large message, and how many such messages need three pages.
const PROPERTIES: usize = 50;
const LARGE_COUNT: usize = 44;
const DAY: u64 = 24 * 3600 * 1000;

/// From acceptance to the end, every step can be read.
pub async fn get_tells_the_whole_life(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 100)]).await;
    let record = t.record("a").await;
    assert_eq!((record.state, record.ready, record.attempts), (State::Pending, ms(100), 0));
    assert_eq!((record.message, record.history.len()), (message("a", 100), 0));

    t.pass(100);
    let leased = t.claim_one("a").await;
    let record = t.record("a").await;
    assert_eq!((record.state, record.message), (State::InFlight, message("a", 100)));
    t.retry(&leased, 50, Outcome::Unreachable).await;
    t.pass(50);
    let leased = t.claim_one("a").await;
    t.retry(&leased, 50, Outcome::Failed).await;
    t.pass(50);
    let leased = t.claim_one("a").await;
    t.deliver(&leased).await;

    let record = t.record("a").await;
    let found: Vec<_> = record.history.iter().map(|attempt| (attempt.at, attempt.outcome)).collect();
    let expected =
        [(ms(100), Outcome::Unreachable), (ms(150), Outcome::Failed), (ms(200), Outcome::Delivered)];
    assert_eq!(found, expected);
    assert_eq!((record.state, record.attempts), (State::Delivered, 2));
    assert_eq!((record.ended, record.receipt.as_deref()), (Some(ms(200)), Some("proof")));
    assert_eq!((record.reason, record.message.due), (None::<DeadReason>, ms(100)));

    let many = t.store().get(&[id("x"), id("a"), id("y")]).await.unwrap();
    assert_eq!(many.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
}

/// Whatever becomes of the message, and whoever asks: by its id, in a list, after a crash.
pub async fn when_it_was_accepted_stays_known(lab: &Lab) {
    let mut t = lab.harness().await;
    t.pass(7);
    let before = real_time();
    t.accept([message("a", 1000), message("b", 1000)]).await;
    let accepted = t.record("a").await.accepted.expect("it is known when it was accepted");
    if t.store().durability() == Durability::Database {
        // By the database's own clock, on the same machine.
        let grace = Duration::from_secs(5);
        let (from, to) = (before.saturating_sub(grace), real_time().saturating_add(grace));
        assert!(accepted >= from && accepted <= to, "accepted at {accepted}, between {from} and {to}");
    } else {
        assert_eq!(accepted, ms(7));
    }
    let same = async |t: &StoreHarness, state: State| {
        let record = t.record("a").await;
        assert_eq!((record.state, record.accepted), (state, Some(accepted)));
        let page = t.list(&Query::all(state)).await;
        let listed = page.records.into_iter().find(|record| record.message.id == id("a")).unwrap();
        assert_eq!(listed.accepted, Some(accepted), "in the list of {state:?}");
    };

    t.pass(10);
    t.insert(message("a", 1000)).await;
    same(&t, State::Pending).await;
    t.reschedule("a", 20).await;
    same(&t, State::Pending).await;
    t.pass(10);
    let leased = t.claim_one("a").await;
    same(&t, State::InFlight).await;
    t.retry(&leased, 10, Outcome::Failed).await;
    same(&t, State::Pending).await;
    t.pass(10);
    t.claim_one("a").await;
    t.crash().await;
    same(&t, State::Pending).await;
    let leased = t.claim_one("a").await;
    t.bury(&leased).await;
    same(&t, State::Dead).await;
    t.replay("a").await;
    same(&t, State::Pending).await;
    let leased = t.claim_one("a").await;
    t.deliver(&leased).await;
    same(&t, State::Delivered).await;
    t.reopen().await;
    same(&t, State::Delivered).await;

    t.cancel("b").await;
    let first = t.record("b").await.accepted;
    assert!(first.is_some(), "of what was cancelled");
    t.accept([message("b", 1000)]).await;
    let again = t.record("b").await.accepted;
    assert!(again >= first, "accepted afresh at {again:?}, after {first:?}");
    if t.store().durability() != Durability::Database {
        assert_eq!(again, Some(t.now().wall()), "it was accepted afresh");
    }
}

async fn pages(t: &StoreHarness, mut query: Query) -> Vec<Vec<(Timestamp, MessageId)>> {
    let mut pages = Vec::new();
    loop {
        let page = t.list(&query).await;
        assert!(page.records.len() <= query.limit);
        assert!(page.records.iter().all(|record| record.message.body.is_empty()), "a list leaves bodies out");
        pages.push(page.records.into_iter().map(|record| (record.message.due, record.message.id)).collect());
        match page.next {
            Some(next) => query.after = Some(next),
            None => return pages,
        }
        assert!(pages.len() < 1000, "a list without end");
    }
}

/// Page after page by `(due, id)`: nothing twice, nothing left out.
pub async fn list_pages_are_stable(lab: &Lab) {
    let t = lab.harness().await;
    t.accept((0..25).map(|n| message(&format!("m{n:02}"), 10 * DAY * (n % 4)))).await;
    for limit in [1, 7, 25, 100] {
        let pages = pages(&t, Query { limit, ..Query::all(State::Pending) }).await;
        let all: Vec<_> = pages.concat();
        assert_eq!(all.len(), 25, "pages of {limit}");
        assert!(all.is_sorted_by(|earlier, later| earlier < later), "pages of {limit}: {all:?}");
    }
    assert!(pages(&t, Query::all(State::Dead)).await.concat().is_empty());
}

/// A page of large messages ends before its limit, and the next one goes on.
pub async fn list_pages_are_bounded_in_bytes(lab: &Lab) {
    let t = lab.harness().await;
    let large = |n: usize| {
        let mut message = message(&format!("m{n:02}"), DAY * (n as u64 % 3));
        (0..PROPERTIES).for_each(|n| message.properties.put(&format!("p{n:02}"), &"x".repeat(4 << 10)));
        message
    };
    // In small parts: a store may refuse a larger batch.
    for n in 0..LARGE_COUNT {
        t.accept([large(n)]).await;
    }
    for topic in [None, Some("work".parse().unwrap())] {
        let query = Query { topic, limit: 1_000, ..Query::all(State::Pending) };
        let pages = pages(&t, query).await;
        let fitting = Page::BYTES_MAX / (PROPERTIES * (4 << 10));
        assert!(pages.iter().all(|page| page.len() <= fitting), "{pages:?}");
        let all = pages.concat();
        assert_eq!(all.len(), LARGE_COUNT);
        assert!(all.is_sorted_by(|earlier, later| earlier < later), "{all:?}");
    }
}

/// By state, sink, topic and due time, together and alone.
pub async fn list_filters(lab: &Lab) {
    let t = lab.harness().await;
    for (state, text) in [
        (State::InFlight, "flying"),
        (State::Delivered, "delivered"),
        (State::Dead, "dead"),
        (State::Cancelled, "cancelled"),
    ] {
        t.bring(message(text, 0), state).await;
        let listed = t.list(&Query::all(state)).await.records;
        assert_eq!(listed.len(), 1, "{state:?}");
        assert_eq!((listed[0].message.id.as_str(), listed[0].state), (text, state));
    }
    t.accept([message_for("kafka", "a", "ka", DAY), message_for("kafka", "b", "kb", 2 * DAY)]).await;
    t.accept([message_for("queue", "a", "qa", 3 * DAY)]).await;
    let all = Query::all(State::Pending);
    let found = async |query: Query| {
        let page = t.list(&query).await;
        page.records.into_iter().map(|record| record.message.id.to_string()).collect::<Vec<_>>()
    };
    let sink = Some("kafka".parse().unwrap());
    let topic = Some("a".parse().unwrap());
    assert_eq!(found(all.clone()).await, ["ka", "kb", "qa"]);
    assert_eq!(found(Query { sink: sink.clone(), ..all.clone() }).await, ["ka", "kb"]);
    assert_eq!(found(Query { topic: topic.clone(), ..all.clone() }).await, ["ka", "qa"]);
    assert_eq!(found(Query { sink, topic, ..all.clone() }).await, ["ka"]);
    let (due_from, due_to) = (Some(ms(2 * DAY)), Some(ms(3 * DAY)));
    assert_eq!(found(Query { due_from, ..all.clone() }).await, ["kb", "qa"]);
    assert_eq!(found(Query { due_to, ..all.clone() }).await, ["ka", "kb"]);
    assert_eq!(found(Query { due_from, due_to, ..all }).await, ["kb"]);
}

/// Accepted = pending + in flight + delivered + cancelled + dead + purged, after every step of every kind.
pub async fn totals_balance(lab: &Lab) {
    let mut t = lab.harness().await;
    // Every step of the harness checks the balance; here the parts are checked too.
    t.accept((0..6).map(|n| message(&n.to_string(), 0))).await;
    t.insert(message("0", 0)).await;
    let leased = t.claim(4).await;
    t.deliver(&leased[0]).await;
    t.bury(&leased[1]).await;
    t.bury(&leased[2]).await;
    t.cancel("4").await;
    t.purge("1").await;
    let totals = t.store().totals().await.unwrap();
    let expected = Totals::ever(6, 1, 1, 1).now(1, 1, 1);
    assert_eq!(totals, expected);
    t.replay("2").await;
    t.accept([message("4", 0)]).await;
    t.pass(LEASE.as_millis() as u64 + 1);
    t.sweep(&["work"]).await;
    let totals = t.store().totals().await.unwrap();
    let expected = Totals::ever(7, 1, 1, 1).now(4, 0, 0);
    assert_eq!(totals, expected);
    t.pass(10 * DAY);
    t.sweep(&["work"]).await;
    assert_eq!(t.store().totals().await.unwrap(), expected, "what retention forgets stays in the books");
    t.crash().await;
    assert_eq!(t.store().totals().await.unwrap(), expected);
}

/// Every lane that holds something or is paused, with its numbers.
pub async fn lanes_are_counted(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("flying", 0)]).await;
    t.claim_one("flying").await;
    t.bring(message("dead", 0), State::Dead).await;
    t.bring(message_for("queue", "gone", "gone", 0), State::Delivered).await;
    t.accept([message("a", 5), message("b", 7), message("c", 5000)]).await;
    t.accept([message_for("kafka", "t", "k", 10 * DAY)]).await;
    t.store().set_paused(&lane("asleep"), true).await.unwrap();
    t.pass(10);
    let mut lanes = t.store().lanes(t.now()).await.unwrap();
    lanes.sort_by_key(|lane| lane.lane.to_string());
    let found: Vec<_> = lanes
        .iter()
        .map(|l| (l.lane.to_string(), l.paused, [l.pending, l.ready, l.in_flight, l.dead], l.oldest_ready))
        .collect();
    let expected = [
        ("kafka".to_string(), false, [1, 0, 0, 0], None),
        ("queue/asleep".to_string(), true, [0, 0, 0, 0], None),
        ("queue/work".to_string(), false, [3, 2, 1, 1], Some(ms(5))),
    ];
    assert_eq!(found, expected);
}

/// How many come due when. The parts asked for are wide, as a store may count in buckets of its own.
pub async fn forecast_counts_what_comes_due(lab: &Lab) {
    let t = lab.harness().await;
    t.accept((0..10).map(|n| message(&format!("soon{n}"), 5 * DAY + n))).await;
    t.accept((0..3).map(|n| message_for("kafka", "t", &format!("late{n}"), 25 * DAY + n))).await;
    t.accept([message("beyond", 45 * DAY), message("gone", 5 * DAY)]).await;
    t.cancel("gone").await;
    t.bring(message("dead", 0), State::Dead).await;
    let forecast = t.store().forecast(ms(DAY), ms(31 * DAY), 3).await.unwrap();
    assert_eq!(forecast, [10, 0, 3]);
    t.reschedule("soon0", 15 * DAY).await;
    let forecast = t.store().forecast(ms(DAY), ms(31 * DAY), 3).await.unwrap();
    assert_eq!(forecast, [9, 1, 3]);
}

/// A store may count in spans that are wider than what is asked for: what they hold is told once, and never left out.
pub async fn forecast_misses_nothing_in_a_narrow_range(lab: &Lab) {
    let t = lab.harness().await;
    let dues = [DAY / 24, 3 * DAY, 40 * DAY, 200 * DAY, 1_000 * DAY].map(|distance| distance + 12_345);
    t.accept(dues.iter().map(|due| message(&format!("at{due}"), *due))).await;
    for due in dues {
        for (from, to) in [(due, due + 1), (due - 100, due + 100), (due - 600_000, due + 600_000)] {
            let counts = t.store().forecast(ms(from), ms(to), 4).await.unwrap();
            assert_eq!(counts.iter().sum::<u64>(), 1, "{from}..{to}: {counts:?}");
        }
    }
}

/// A lane paused by an operator stays paused, whatever happens to the process.
pub async fn pause_is_durable(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0), message_for("queue", "free", "b", 0)]).await;
    t.store().set_paused(&lane("work"), true).await.unwrap();
    t.reopen().await;
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.crash().await;
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    assert_eq!(ids(&t.claim_from("free", 10).await), ["b"]);
    t.store().set_paused(&lane("work"), false).await.unwrap();
    t.crash().await;
    assert_eq!(ids(&t.claim(10).await), ["a"]);
}

/// Whoever asks for everything but the bodies is told the same of each, in their order.
pub async fn without_bodies_everything_else_comes_back(lab: &Lab) {
    let mut t = lab.harness().await;
    // More than a store reads at once.
    let ids: Vec<_> = (0..40).map(|n| duly_core::MessageId::parse(&format!("m{n:02}")).unwrap()).collect();
    t.accept(ids.iter().map(|id| message(id.as_str(), 5))).await;
    t.pass(5);
    let held = t.claim(7).await;
    t.retry(&held[0], 50, Outcome::Failed).await;
    t.deliver(&held[1]).await;
    let asked: Vec<_> = ids.iter().rev().cloned().chain(["nobody".parse().unwrap()]).collect();
    let whole = t.store().get(&asked).await.unwrap();
    let without = t.store().get_without_bodies(&asked).await.unwrap();
    assert!(without.iter().flatten().all(|record| record.message.body.is_empty()));
    let whole: Vec<_> = whole.into_iter().map(|record| record.map(duly_core::Record::without_body)).collect();
    assert_eq!(without, whole);
}
