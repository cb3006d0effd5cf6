//! The move between two stores in memory, with its process killed at every call, and others at work meanwhile.

mod bed;
mod connections;
mod dead;
mod others;

use std::time::Duration;

use duly::{Body, State, Store, hours};
use duly_core::store::Inserted;
use duly_stores::memory;

use self::{
    bed::{Bed, COUNT, id, now},
    connections::{Connections, Cut, Meddler},
};

const CUTS: [Cut; 3] = [Cut::Before, Cut::Half, Cut::After];

/// What somebody else does, and how it is called.
type Deed = (&'static str, fn(&Bed));

/// What somebody else may do at the source while a move goes on, or between two runs of it.
const DEEDS: [Deed; 6] = [
    ("nothing", |_| ()),
    ("cancel some", |bed| [0, 2, 4].into_iter().for_each(|number| bed.cancel(&bed.source, number))),
    ("cancel some at once", |bed| {
        [1, 2, 6].into_iter().for_each(|number| bed.cancel_now(&bed.source, number))
    }),
    ("reschedule some", |bed| {
        let later = duly::Clock::now(&bed.clock).wall().saturating_add(hours(50));
        [0, 3, 5].into_iter().for_each(|number| bed.reschedule(&bed.source, number, later));
    }),
    ("deliver what is due there", |bed| bed.deliver(&bed.source)),
    ("deliver what is due at both, hours later", |bed| {
        bed.clock.advance(hours(4));
        bed.deliver(&bed.source);
        bed.deliver(&bed.target);
    }),
];

fn meddler(bed: &Bed, deed: impl FnOnce(&Bed) + Send + 'static) -> Meddler {
    let bed = bed.clone();
    Box::new(move || deed(&bed))
}

#[tokio::test]
async fn everything_is_moved_as_it_was() {
    let bed = Bed::new();
    bed.clock.advance(hours(1));
    let run = bed.run(Connections::default(), |_| ()).await;
    run.done.unwrap();
    assert_eq!((run.report.counts.moved, run.report.complete), (COUNT as u64, true));
    for number in 0..COUNT {
        let record = now(bed.target.get(&[id(number)])).unwrap().remove(0).unwrap();
        assert_eq!((record.message, record.state), (bed.message(number), State::Pending));
        assert_eq!(record.accepted, Some(bed.began), "when it was accepted at the source");
    }
    bed.check("moved");
}

#[tokio::test]
async fn killed_at_any_call_and_run_again_each_message_is_delivered_once_whatever_others_do_meanwhile() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    assert!(calls > 20, "{calls}");
    for (deed, do_it) in DEEDS {
        for at in 0..calls {
            for cut in CUTS {
                let context = format!("killed at call {at} ({cut:?}), then {deed}");
                let bed = Bed::new();
                assert!(bed.run(Connections::cut(at, cut), |_| ()).await.done.is_err(), "{context}");
                do_it(&bed);
                bed.run(Connections::default(), |_| ()).await.done.unwrap();
                bed.check(&context);
            }
        }
    }
}

#[tokio::test]
async fn whatever_others_do_at_any_moment_and_wherever_it_is_killed_then_each_message_is_delivered_once() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    for (deed, do_it) in &DEEDS[1..] {
        for at in 0..calls {
            for cut_at in (at..calls + 2).chain([usize::MAX]) {
                let context = format!("{deed} before call {at}, killed after call {cut_at}");
                let bed = Bed::new();
                let connections = Connections::cut(cut_at, Cut::After);
                connections.meddle(at, meddler(&bed, *do_it));
                let _ = bed.run(connections, |_| ()).await;
                bed.run(Connections::default(), |_| ()).await.done.unwrap();
                bed.check(&context);
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_is_done_long_after_its_process_died_loses_nothing() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    for (deed, do_it) in [DEEDS[0], DEEDS[4], DEEDS[5]] {
        for at in 0..calls {
            for done_at in 0..calls + 2 {
                let context = format!("call {at} is done before call {done_at} of the next run; {deed}");
                let (bed, connections) = (Bed::new(), Connections::cut(at, Cut::Late));
                let (run, late) = bed.run_and_keep(connections).await;
                assert!(run.done.is_err(), "{context}");
                do_it(&bed);
                let Some(late) = late else { break };
                let connections = Connections::default();
                connections.meddle(done_at, late);
                // The run after the next one finds what came too late for that.
                let _ = bed.run(connections, |_| ()).await;
                bed.run(Connections::default(), |_| ()).await.done.unwrap();
                bed.check(&context);
            }
        }
    }
}

#[tokio::test]
async fn a_run_that_is_killed_again_and_again_gets_there() {
    for step in [1, 5, 11, 12, 13, 14, 15, 16] {
        let bed = Bed::new();
        let mut runs = 0;
        // Each life is a little longer than the one before, or it would never get past its beginning.
        for life in (0..).step_by(step) {
            runs += 1;
            if bed.run(Connections::cut(life, CUTS[runs % 3]), |_| ()).await.done.is_ok() {
                break;
            }
        }
        assert!(runs > 2);
        bed.check(&format!("each {step} calls longer"));
    }
}

#[tokio::test]
async fn what_is_cancelled_at_the_target_on_its_way_stays_cancelled() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    for at in 0..calls {
        let (bed, connections) = (Bed::new(), Connections::default());
        connections
            .meddle(at, meddler(&bed, |bed| (0..COUNT).for_each(|number| bed.cancel(&bed.target, number))));
        bed.run(connections, |_| ()).await.done.unwrap();
        bed.check(&format!("cancelled at the target before call {at}"));
    }
}

#[tokio::test]
async fn what_the_target_knows_is_not_delivered_by_both_and_a_conflict_stays() {
    let bed = Bed::new();
    assert_eq!(bed.accept(&bed.target, &bed.message(1)), Inserted::Accepted);
    let mut other = bed.message(3);
    other.body = Body::text("something else");
    assert_eq!(bed.accept(&bed.target, &other), Inserted::Accepted);
    let run = bed.run(Connections::default(), |_| ()).await;
    run.done.unwrap();
    let report = run.report;
    assert_eq!((report.counts.moved, report.counts.known, report.kept.conflicts), (COUNT as u64 - 2, 1, 1));
    assert_eq!((report.left.pending, report.complete), (1, true), "but for the conflict");
    assert_eq!(report.settlement().unwrap_err().code(), 4);
    let [there, here] = [&bed.source, &bed.target].map(|store| now(store.get(&[id(3)])).unwrap().remove(0));
    assert_eq!((there.unwrap().state, here.unwrap().message.body), (State::Pending, other.body));
    now(bed.target.cancel(duly::Clock::now(&bed.clock), &[id(3)])).unwrap();
    let run = bed.run(Connections::default(), |_| ()).await;
    assert_eq!((run.report.counts.moved, run.report.kept.conflicts), (1, 0));
    bed.check("once the conflict is gone");
}

#[tokio::test]
async fn what_the_source_has_forgotten_is_left_until_somebody_decides() {
    let forgetful = memory::Options { retention: Duration::ZERO, ..memory::Options::default() };
    let calls = Bed::with(forgetful.clone()).run(Connections::default(), |_| ()).await.calls;
    let mut left = 0;
    for at in 0..calls {
        let bed = Bed::with(forgetful.clone());
        let _ = bed.run(Connections::cut(at, Cut::After), |_| ()).await;
        let run = bed.run(Connections::default(), |_| ()).await;
        run.done.unwrap();
        let forgotten = run.report.kept.forgotten;
        assert!(forgotten <= 3, "no more than one batch");
        assert_eq!(run.report.settlement().is_err(), forgotten > 0);
        left += forgotten;
        let run = bed.run(Connections::default(), |options| options.deliver_forgotten = true).await;
        assert_eq!((run.report.counts.moved, run.report.kept.forgotten), (forgotten, 0));
        bed.check(&format!("killed after call {at}"));
    }
    assert!(left > 0);
}

#[tokio::test]
async fn a_move_that_is_given_up_is_cleared_up() {
    let calls = Bed::new().run(Connections::default(), |_| ()).await.calls;
    for at in 0..calls {
        let bed = Bed::new();
        let _ = bed.run(Connections::cut(at, Cut::After), |_| ()).await;
        let run = bed.run(Connections::default(), |options| options.tidy = true).await;
        run.done.unwrap();
        let back = bed.back();
        back.run(Connections::default(), |_| ()).await.done.unwrap();
        assert_eq!(now(bed.source.totals()).unwrap().pending, COUNT as u64, "all came back");
        back.check(&format!("killed after call {at}, cleared up, moved back"));
    }
}

#[tokio::test]
async fn a_source_that_others_were_being_moved_into_is_not_left() {
    for at in 0.. {
        let bed = Bed::new();
        assert!(
            bed.run(Connections::cut(at, Cut::After), |_| ()).await.done.is_err(),
            "no call left copies behind"
        );
        // As soon as it was cut in the middle of a batch.
        if let Err(failure) = bed.back().run(Connections::default(), |_| ()).await.done {
            assert!(failure.code() == 4 && failure.words.contains("cut short"), "{failure}");
            bed.run(Connections::default(), |_| ()).await.done.unwrap();
            return bed.check("finished first");
        }
    }
}

#[tokio::test]
async fn a_store_is_not_moved_into_itself() {
    let mut bed = Bed::new();
    bed.target = bed.source.clone();
    let failure = bed.run(Connections::default(), |_| ()).await.done.unwrap_err();
    assert!(failure.code() == 2 && failure.words.contains("one and the same"), "{failure}");
    assert_eq!(now(bed.source.totals()).unwrap().pending, COUNT as u64);
}
