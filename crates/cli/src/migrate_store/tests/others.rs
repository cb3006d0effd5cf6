//! What others do at the source while messages are moved: sent again with the same ids, replayed, forgotten.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use duly::{Attempt, Clock, MessageId, Outcome, State, Store, Topic, hours};
use duly_core::store::{Inserted, Settle, Settlement};
use duly_stores::memory;

use super::{
    CUTS,
    bed::{Bed, COUNT, id, now},
    connections::{Connections, Cut},
    meddler,
};

#[tokio::test]
async fn a_copy_is_withdrawn_before_the_source_forgets_that_it_delivered_the_message() {
    let short = || memory::Options { retention: Duration::from_secs(1_800), ..memory::Options::default() };
    let calls = Bed::with(short()).run(Connections::default(), |_| ()).await.calls;
    let mut withdrawn = 0;
    for at in 0..calls {
        let (bed, connections) = (Bed::with(short()), Connections::default());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (first, then) = (taken.clone(), taken.clone());
        connections.meddle(at, meddler(&bed, move |bed| *first.lock().unwrap() = bed.claim(&bed.source)));
        connections.meddle(at + 2, {
            meddler(&bed, move |bed| bed.settle(&bed.source, then.lock().unwrap().drain(..).collect()))
        });
        connections.meddle(at + 9, {
            meddler(&bed, |bed| {
                bed.clock.advance(hours(1));
                now(bed.source.sweep(bed.clock.now(), &[])).unwrap();
            })
        });
        let run = bed.run(connections, |options| options.look_every = Duration::ZERO).await;
        run.done.unwrap();
        assert_eq!(run.report.kept.forgotten, 0, "claimed before call {at}");
        withdrawn += run.report.counts.withdrawn;
        bed.settle(&bed.source, taken.lock().unwrap().drain(..).collect());
        bed.run(Connections::default(), |_| ()).await.done.unwrap();
        bed.check(&format!("claimed before call {at}"));
    }
    assert!(withdrawn > 0);
}

#[tokio::test]
async fn what_is_cancelled_and_sent_again_with_other_content_is_what_arrives() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    let mut untold = 0;
    for at in 0..calls {
        let (bed, connections) = (Bed::new(), Connections::default());
        connections.meddle(at, meddler(&bed, |bed| bed.replace(3)));
        let run = bed.run(connections, |_| ()).await;
        run.done.unwrap();
        if run.report.kept.forgotten > 0 {
            // Between the look at it and its cancel: what was sent last is gone, which is told, and what was cancelled stays so.
            assert_eq!(run.report.settlement().unwrap_err().code(), 4);
            bed.clock.advance(hours(100));
            bed.deliver(&bed.target);
            assert_eq!(bed.arrivals()[3], 0);
            untold += 1;
            continue;
        }
        bed.run(Connections::default(), |_| ()).await.done.unwrap();
        bed.check(&format!("sent again before call {at}"));
    }
    assert!(untold <= 2, "{untold}: only between the look and the cancel");
    for at in 0..calls {
        let bed = Bed::new();
        let _ = bed.run(Connections::cut(at, Cut::After), |_| ()).await;
        (0..COUNT).for_each(|number| bed.replace(number));
        // The first run withdraws copies of what was cancelled, the second moves what was sent.
        for _ in 0..2 {
            let run = bed.run(Connections::default(), |_| ()).await;
            run.done.unwrap();
            assert_eq!(run.report.kept.conflicts, 0, "killed after call {at}");
        }
        bed.check(&format!("killed after call {at}, then sent again"));
    }
}

#[tokio::test]
async fn a_dead_letter_that_is_replayed_before_a_late_cancel_is_not_lost() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    let mut cancelled_late = 0;
    for at in 0..calls {
        let bed = Bed::new();
        let (_, late) = bed.run_and_keep(Connections::cut(at, Cut::Late)).await;
        let Some(late) = late else { continue };
        let taken = bed.claim(&bed.source);
        let ids: Vec<MessageId> = taken.iter().map(|leased| leased.message.id.clone()).collect();
        for leased in taken {
            let reason = duly::DeadReason::Refused;
            let settlement = Settlement::Dead { reason, attempt: None };
            now(bed.source.settle(bed.clock.now(), vec![Settle { receipt: leased.receipt, settlement }]))
                .unwrap();
        }
        bed.run(Connections::default(), |options| options.late = hours(1)).await.done.unwrap();
        now(bed.source.replay(bed.clock.now(), &ids)).unwrap();
        late();
        let records = now(bed.source.get(&ids)).unwrap();
        cancelled_late += records.iter().flatten().filter(|record| record.state == State::Cancelled).count();
        bed.clock.advance(hours(2));
        bed.run(Connections::default(), |_| ()).await.done.unwrap();
        bed.clock.advance(hours(100));
        // Those that were moved as dead letters are replayed where they are.
        now(bed.target.replay(bed.clock.now(), &ids)).unwrap();
        // Replayed, they are due now, and not when they were.
        let due: Vec<_> = ids.iter().map(|id| (id.clone(), bed.message_of(id).due)).collect();
        now(bed.target.reschedule(bed.clock.now(), &due)).unwrap();
        bed.check(&format!("call {at} came late"));
    }
    assert!(cancelled_late > 0);
}

/// A copy is withdrawn because its message was tried at the source since. It is all there is once the message is cancelled there.
#[tokio::test]
async fn what_is_rescheduled_at_the_target_is_not_lost_to_a_withdrawal_that_comes_late() {
    let parked = async || {
        let bed = Bed::new();
        for at in 0.. {
            let _ = bed.run(Connections::cut(at, Cut::After), |_| ()).await;
            if now(bed.target.get(&[id(0)])).unwrap()[0].is_some() {
                break;
            }
        }
        for leased in bed.claim(&bed.source) {
            let attempt = Attempt::new(bed.clock.now().wall(), Outcome::Unknown, "no answer");
            let settlement = Settlement::Retry { at: bed.clock.now().wall(), attempt };
            let settle = Settle { receipt: leased.receipt, settlement };
            now(bed.source.settle(bed.clock.now(), vec![settle])).unwrap();
        }
        bed
    };
    let calls = parked().await.run(Connections::default(), |_| ()).await.calls;
    let mut withdrawn_late = 0;
    for at in 0..calls {
        let bed = parked().await;
        let (_, late) = bed.run_and_keep(Connections::cut(at, Cut::Late)).await;
        let Some(late) = late else { continue };
        let later = bed.clock.now().wall().saturating_add(hours(50));
        (0..COUNT).for_each(|number| bed.reschedule(&bed.target, number, later));
        bed.run(Connections::default(), |options| options.late = hours(1)).await.done.unwrap();
        late();
        let ids: Vec<_> = (0..COUNT).map(id).collect();
        let copies = now(bed.target.get(&ids)).unwrap();
        withdrawn_late += copies.iter().flatten().filter(|copy| copy.state == State::Cancelled).count();
        bed.clock.advance(hours(2));
        for _ in 0..2 {
            bed.run(Connections::default(), |_| ()).await.done.unwrap();
        }
        // Of what was withdrawn and moved again, the time is that of the source.
        for copy in now(bed.target.get(&ids)).unwrap().into_iter().flatten() {
            bed.is_known_as_due(&copy.message.id, copy.message.due);
        }
        bed.check(&format!("call {at} came late"));
    }
    assert!(withdrawn_late > 0);
}

#[tokio::test]
async fn a_single_pass_goes_on_with_what_a_run_before_parked() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    for at in 0..calls {
        for cut in CUTS {
            let bed = Bed::new();
            let _ = bed.run(Connections::cut(at, cut), |_| ()).await;
            let single = bed.run(Connections::default(), |options| {
                (options.awaits_late_calls, options.late) = (true, hours(1));
            });
            // The clock goes on once the run waits for it.
            let (run, ()) = tokio::join!(single, async { bed.clock.advance(hours(2)) });
            run.done.unwrap();
            bed.check(&format!("cut at call {at} ({cut:?})"));
        }
    }
}

#[tokio::test]
async fn a_topic_that_is_called_like_the_markers_is_moved_like_any_other() {
    let bed = Bed::new();
    let mut message = bed.message(3);
    message.topic = Topic::parse("duly.migrate-store").unwrap();
    message.id = id(100);
    assert_eq!(bed.accept(&bed.source, &message), Inserted::Accepted);
    let mut like_a_marker = message.clone();
    like_a_marker.id = MessageId::parse("duly.migrate-store.mine").unwrap();
    assert_eq!(bed.accept(&bed.source, &like_a_marker), Inserted::Accepted);
    for at in 0.. {
        if bed.run(Connections::cut(at, Cut::After), |_| ()).await.done.is_ok() {
            break;
        }
    }
    let run = bed.run(Connections::default(), |_| ()).await;
    assert_eq!(
        (run.report.kept.reserved, run.report.left.pending),
        (1, 1),
        "an id like those of markers stays"
    );
    assert_eq!(run.report.kept.conflicts, 0, "the target does not know it");
    let words = run.report.settlement().unwrap_err().words;
    assert!(words.contains("their ids belong to the move") && !words.contains("other content"), "{words}");
    let moved = now(bed.target.get(&[id(100)])).unwrap().remove(0).unwrap();
    assert_eq!((moved.state, moved.message.due), (State::Pending, message.due));
}
