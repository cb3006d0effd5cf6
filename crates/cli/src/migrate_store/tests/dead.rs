//! What a message has behind it comes along, and dead letters do, wherever the move is killed and whatever others do meanwhile.

use std::sync::{Arc, Mutex};

use duly::{Attempt, Clock, Lane, MessageId, Outcome, State, Store, Topic, hours};
use duly_core::store::{LeasedMessage, Settle, Settlement};
use duly_stores::{MemoryStore, memory};

use super::{
    CUTS,
    bed::{Bed, COUNT, LANE, now},
    connections::{Connections, Cut},
    meddler,
};

/// How a dead letter must be where it is: once, with all that it has behind it.
fn check_dead(bed: &Bed, ids: &[MessageId], context: &str) {
    for id in ids {
        let [there, here] = [&bed.source, &bed.target]
            .map(|store| now(store.get(std::slice::from_ref(id))).unwrap().remove(0));
        assert!(there.is_none(), "{context}: {id} is at the source still: {there:?}");
        let here = here.unwrap_or_else(|| panic!("{context}: {id} is lost"));
        assert_eq!((here.state, here.message), (State::Dead, bed.message_of(id)), "{context}");
        assert_eq!((here.attempts, here.maybe_delivered), (1, true), "{context}");
        assert_eq!((here.history.len(), here.reason), (1, Some(duly::DeadReason::Exhausted)), "{context}");
        assert!(here.ended.is_some() && here.accepted == Some(bed.began), "{context}");
    }
}

/// A source with two dead letters.
fn with_dead() -> (Bed, Vec<MessageId>) {
    let bed = Bed::new();
    let ids = bed.bury();
    assert_eq!(ids.len(), 2);
    bed.clock.advance(hours(1));
    (bed, ids)
}

/// So many calls it takes to move all of it.
async fn calls() -> usize {
    with_dead().0.run(Connections::default(), |_| ()).await.calls
}

#[tokio::test]
async fn dead_letters_move_with_their_past_and_pauses_come_along() {
    let (bed, ids) = with_dead();
    let lane = Lane::Queue(Topic::parse(LANE).unwrap());
    now(bed.source.set_paused(&lane, true)).unwrap();
    let run = bed.run(Connections::default(), |_| ()).await;
    run.done.unwrap();
    let report = run.report;
    assert_eq!((report.counts.moved, report.counts.dead, report.left.dead), (COUNT as u64 - 2, 2, 0));
    assert_eq!((report.counts.lanes_paused, report.complete), (1, true));
    assert!(now(bed.target.lanes(bed.clock.now())).unwrap()[0].paused);
    check_dead(&bed, &ids, "moved");
    now(bed.target.set_paused(&lane, false)).unwrap();
    bed.check("moved");
}

#[tokio::test]
async fn dead_letters_are_replayed_at_the_target_if_that_is_wanted_wherever_it_is_killed() {
    for at in 0..calls().await + 2 {
        for cut in CUTS {
            let (bed, ids) = with_dead();
            let _ = bed.run(Connections::cut(at, cut), |options| options.replay_dead = true).await;
            let run = bed.run(Connections::default(), |options| options.replay_dead = true).await;
            run.done.unwrap();
            assert_eq!(run.report.left.dead, 0);
            for id in &ids {
                let due = bed.clock.now().wall();
                bed.is_to_arrive(id, due);
            }
            bed.check(&format!("killed at call {at} ({cut:?})"));
        }
    }
}

#[tokio::test]
async fn killed_at_any_call_each_dead_letter_is_at_one_of_the_two_whatever_others_do_meanwhile() {
    for at in 0..calls().await {
        for cut in CUTS {
            for deed in ["nothing", "replay", "replay, and it dies again"] {
                let context = format!("killed at call {at} ({cut:?}), then {deed}");
                let (bed, ids) = with_dead();
                assert!(bed.run(Connections::cut(at, cut), |_| ()).await.done.is_err(), "{context}");
                let replayed = if deed == "nothing" { Vec::new() } else { bed.replay(&bed.source, &ids) };
                if deed == "replay, and it dies again" {
                    bed.bury();
                }
                // What was replayed has lost its copy by the first run, and is moved by the second.
                for _ in 0..2 {
                    bed.run(Connections::default(), |_| ()).await.done.unwrap();
                }
                let still_dead = |id: &&MessageId| deed != "replay" || !replayed.contains(id);
                let dead: Vec<_> = ids.iter().filter(still_dead).cloned().collect();
                check_dead(&bed, &dead, &context);
                bed.check(&context);
            }
        }
    }
}

/// The target takes such an id afresh. A copy that no marker names would be taken for a dead letter of the target's own, and what is
/// replayed at the source for the same message.
#[tokio::test]
async fn a_dead_letter_whose_id_the_target_delivered_long_ago_is_copied_like_any_other() {
    let mut at_both = 0;
    for at in 0..calls().await {
        for cut_at in at..at + 3 {
            for cut in CUTS {
                let (mut bed, ids) = with_dead();
                let short = memory::Options { retention: hours(1), ..memory::Options::default() };
                bed.target = MemoryStore::with(short);
                ids.iter().for_each(|id| _ = bed.accept(&bed.target, &bed.message_of(id)));
                for LeasedMessage { receipt, .. } in bed.claim(&bed.target) {
                    let settle = Settle { receipt, settlement: Settlement::Delivered { receipt: None } };
                    now(bed.target.settle(bed.clock.now(), vec![settle])).unwrap();
                }
                let connections = Connections::cut(cut_at, cut);
                connections.meddle(at, meddler(&bed, |bed| bed.clock.advance(hours(2))));
                let _ = bed.run(connections, |_| ()).await;
                let copies = now(bed.target.get(&ids)).unwrap();
                let is_dead = |copy: &&duly::Record| copy.state == State::Dead;
                let copied = copies.iter().flatten().filter(is_dead).count();
                let replayed = bed.replay(&bed.source, &ids);
                at_both += copied.min(replayed.len());
                bed.clock.advance(hours(2));
                now(bed.target.sweep(bed.clock.now(), &[])).unwrap();
                for _ in 0..2 {
                    bed.run(Connections::default(), |_| ()).await.done.unwrap();
                }
                bed.check(&format!("past retention before call {at}, killed at call {cut_at} ({cut:?})"));
            }
        }
    }
    assert!(at_both > 0);
}

#[tokio::test]
async fn what_is_replayed_at_the_source_at_any_moment_arrives_once() {
    for at in 0..calls().await {
        let (bed, ids) = with_dead();
        let (connections, replayed) = (Connections::default(), Arc::new(Mutex::new(Vec::new())));
        let (its_ids, its_replayed) = (ids.clone(), replayed.clone());
        connections.meddle(at, {
            meddler(&bed, move |bed| *its_replayed.lock().unwrap() = bed.replay(&bed.source, &its_ids))
        });
        bed.run(connections, |_| ()).await.done.unwrap();
        bed.run(Connections::default(), |_| ()).await.done.unwrap();
        let replayed = replayed.lock().unwrap();
        let dead: Vec<_> = ids.iter().filter(|id| !replayed.contains(id)).cloned().collect();
        let context = format!("replayed before call {at}");
        check_dead(&bed, &dead, &context);
        bed.check(&context);
    }
}

#[tokio::test]
async fn a_call_about_dead_letters_that_is_done_late_loses_none() {
    for at in 0..calls().await {
        for is_replayed in [false, true] {
            for is_late_first in [false, true] {
                let context =
                    format!("call {at} late, replayed {is_replayed}, before the next run {is_late_first}");
                let (bed, ids) = with_dead();
                let (_, late) = bed.run_and_keep(Connections::cut(at, Cut::Late)).await;
                let Some(late) = late else { continue };
                if is_replayed {
                    bed.replay(&bed.source, &ids);
                    bed.bury();
                }
                let in_time = |options: &mut super::super::migration::Options| options.late = hours(1);
                if is_late_first {
                    late();
                    bed.run(Connections::default(), in_time).await.done.unwrap();
                } else {
                    bed.run(Connections::default(), in_time).await.done.unwrap();
                    late();
                }
                bed.clock.advance(hours(2));
                for _ in 0..2 {
                    bed.run(Connections::default(), |_| ()).await.done.unwrap();
                }
                // A purge that met what was replayed and died again left the copy of before: the time of the replay is missing.
                for record in now(bed.target.get(&ids)).unwrap().into_iter().flatten() {
                    bed.is_known_as_due(&record.message.id, record.message.due);
                }
                check_dead(&bed, &ids, &context);
                bed.check(&context);
            }
        }
    }
}

#[tokio::test]
async fn a_move_of_dead_letters_that_is_given_up_is_cleared_up() {
    for at in 0..calls().await {
        let (bed, ids) = with_dead();
        let _ = bed.run(Connections::cut(at, Cut::After), |_| ()).await;
        bed.run(Connections::default(), |options| options.tidy = true).await.done.unwrap();
        let back = bed.back();
        back.run(Connections::default(), |_| ()).await.done.unwrap();
        check_dead(&back, &ids, &format!("killed after call {at}, cleared up, moved back"));
    }
}

#[tokio::test]
async fn a_dead_letter_whose_id_means_something_else_at_the_target_stays_and_is_named() {
    let (bed, ids) = with_dead();
    let mut other = bed.message_of(&ids[0]);
    other.body = duly::Body::text("something else");
    bed.accept(&bed.target, &other);
    let run = bed.run(Connections::default(), |_| ()).await;
    run.done.unwrap();
    assert_eq!((run.report.counts.dead, run.report.kept.dead_kept, run.report.complete), (1, 1, true));
    assert_eq!(run.report.settlement().unwrap_err().code(), 4);
    let record = now(bed.target.get(&ids[..1])).unwrap().remove(0).unwrap();
    assert_eq!((record.state, record.message.body), (State::Pending, other.body));
}

#[tokio::test]
async fn a_try_that_ends_at_the_source_after_its_message_was_parked_is_not_forgotten() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    let mut stayed = 0;
    for at in 0..calls {
        let (bed, connections) = (Bed::new(), Connections::default());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let its_taken = taken.clone();
        connections.meddle(at, meddler(&bed, move |bed| *its_taken.lock().unwrap() = bed.claim(&bed.source)));
        bed.run(connections, |_| ()).await.done.unwrap();
        let taken: Vec<_> = taken.lock().unwrap().drain(..).collect();
        stayed += taken.len();
        let ids: Vec<_> = taken.iter().map(|leased| leased.message.id.clone()).collect();
        for leased in taken {
            let attempt = Attempt::new(bed.clock.now().wall(), Outcome::Unknown, "no answer");
            let settlement = Settlement::Retry { at: bed.clock.now().wall(), attempt };
            let settle = Settle { receipt: leased.receipt, settlement };
            now(bed.source.settle(bed.clock.now(), vec![settle])).unwrap();
        }
        for _ in 0..2 {
            bed.run(Connections::default(), |_| ()).await.done.unwrap();
        }
        for record in now(bed.target.get(&ids)).unwrap().into_iter().flatten() {
            let context = format!("claimed before call {at}: {record:?}");
            assert_eq!(
                (record.attempts, record.history.len(), record.maybe_delivered),
                (1, 1, true),
                "{context}"
            );
        }
        bed.check(&format!("claimed before call {at}"));
    }
    assert!(stayed > 0);
}
