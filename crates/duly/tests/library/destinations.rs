//! Destinations inside one sink: a topic that is silent, full or forbidden holds up no other.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use duly::{
    Clock, Delivery, Event, ManualClock, Message, Outcome, Outcomes, RetryPolicy, Sink, SinkError,
    SinkErrorKind, SinkOptions, State, Timestamp, minutes, seconds,
};
use duly_stores::MemoryStore;

use crate::bench::Bench;

/// What a topic does with its messages.
#[derive(Clone, Copy)]
enum Topic {
    /// Never answers.
    Silent,
    /// Fails in this way, about itself alone.
    Fails(SinkErrorKind),
}

/// A target with topics that go their own ways; the others take everything at once.
struct Topics {
    clock: ManualClock,
    bad: Mutex<BTreeMap<&'static str, Topic>>,
    arrived: Mutex<Vec<(String, Timestamp)>>,
    tried: Mutex<BTreeMap<String, usize>>,
}

impl Topics {
    fn arrived(&self, topic: &str) -> Vec<Timestamp> {
        let arrived = self.arrived.lock().unwrap();
        arrived.iter().filter(|(name, _)| name == topic).map(|(_, at)| *at).collect()
    }

    fn tried(&self, topic: &str) -> usize {
        self.tried.lock().unwrap().get(topic).copied().unwrap_or_default()
    }

    fn mend(&self) {
        self.bad.lock().unwrap().clear();
    }
}

#[async_trait]
impl Sink for Topics {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let mut waits = false;
        for (index, delivery) in batch.iter().enumerate() {
            let topic = delivery.message.topic.as_str();
            *self.tried.lock().unwrap().entry(topic.to_owned()).or_default() += 1;
            let does = self.bad.lock().unwrap().get(topic).copied();
            match does {
                Some(Topic::Silent) => waits = true,
                Some(Topic::Fails(kind)) => {
                    outcomes.report(index, Err(SinkError::new(kind, "as told").at_destination()));
                }
                None => {
                    let now = self.clock.now().wall();
                    self.arrived.lock().unwrap().push((topic.to_owned(), now));
                    outcomes.report(index, Ok(String::new()));
                }
            }
        }
        if waits {
            std::future::pending::<()>().await;
        }
    }

    async fn probe(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

async fn start(bad: &[(&'static str, Topic)]) -> (Bench, Arc<Topics>) {
    let clock = ManualClock::new();
    let target = Arc::new(Topics {
        clock: clock.clone(),
        bad: Mutex::new(bad.iter().copied().collect()),
        arrived: Mutex::default(),
        tried: Mutex::default(),
    });
    let sink = target.clone();
    let retry = RetryPolicy { attempts: 4, ..RetryPolicy::default() };
    let bench = Bench::on(Arc::new(MemoryStore::new()), clock, |builder| {
        builder.sink("orders", sink, SinkOptions { retry: Some(retry), ..SinkOptions::default() })
    })
    .await;
    (bench, target)
}

/// `good` gets a message a second for `seconds`, each on time, whatever `bad` does.
async fn all_good_ones_come_on_time(bench: &Bench, target: &Topics, count: u64) {
    let mut want = Vec::new();
    for n in 0..count {
        want.push(bench.in_ms(1_000 * n));
        bench.send(Message::to("orders/good").after(seconds(n))).await;
    }
    bench.pass(seconds(count)).await;
    let late: Vec<_> = target.arrived("good").iter().zip(&want).map(|(at, due)| at.since(*due)).collect();
    assert_eq!(late.len() as u64, count);
    assert!(late.iter().all(|late| late.as_millis() <= 1), "{late:?}");
}

#[tokio::test]
async fn a_silent_topic_with_a_large_backlog_holds_up_no_other_and_recovers() {
    let (bench, target) = start(&[("bad", Topic::Silent)]).await;
    bench.send(Message::to("orders/good")).await;
    bench.pass(seconds(1)).await;
    target.arrived.lock().unwrap().clear();
    for n in 0..1_200 {
        bench.send(Message::to("orders/bad").after(seconds(n / 100))).await;
    }
    all_good_ones_come_on_time(&bench, &target, 45).await;
    let totals = bench.duly.totals().await.unwrap();
    assert_eq!(totals.dead, 0, "an outage of a destination dead-letters nothing");
    target.mend();
    bench.pass(minutes(1)).await;
    assert_eq!(target.arrived("bad").len(), 1_200);
}

#[tokio::test]
async fn a_full_topic_uses_up_no_attempts_and_slows_no_other() {
    for kind in [SinkErrorKind::Throttled, SinkErrorKind::Unreachable, SinkErrorKind::Misconfigured] {
        let (bench, target) = start(&[("bad", Topic::Fails(kind))]).await;
        let id = bench.send(Message::to("orders/bad")).await;
        all_good_ones_come_on_time(&bench, &target, 90).await;
        let record = bench.record(&id).await;
        assert_eq!((record.state, record.attempts), (State::Pending, 0), "{kind:?}");
        assert!(target.tried("bad") < 20, "{kind:?}: asked {} times", target.tried("bad"));
        target.mend();
        bench.pass(seconds(31)).await;
        assert_eq!(bench.record(&id).await.state, State::Delivered, "{kind:?}");
    }
}

#[tokio::test]
async fn messages_to_a_forbidden_topic_die_by_their_policy_and_the_topic_is_asked_seldom() {
    let (bench, target) = start(&[("bad", Topic::Fails(SinkErrorKind::Denied))]).await;
    let mut ids = Vec::new();
    for _ in 0..200 {
        ids.push(bench.send(Message::to("orders/bad")).await);
    }
    all_good_ones_come_on_time(&bench, &target, 60).await;
    for id in &ids {
        let record = bench.record(id).await;
        assert_eq!((record.state, record.attempts), (State::Dead, 4));
        // While the topic is being tried with one message, the others wait, and that counts nothing.
        let counted = record.history.iter().filter(|attempt| attempt.outcome.counts());
        assert!(
            counted.clone().count() == 4 && counted.clone().all(|a| a.outcome == Outcome::Denied),
            "{record:?}"
        );
        assert!(!record.maybe_delivered, "it has surely not got it");
    }
    assert!(
        target.tried("bad") < 230,
        "after the first answer it is asked now and then: {}",
        target.tried("bad")
    );
}

#[tokio::test]
async fn the_state_of_destinations_is_told() {
    let (bench, target) = start(&[("bad", Topic::Fails(SinkErrorKind::Throttled))]).await;
    let mut events = bench.duly.events();
    bench.send(Message::to("orders/bad")).await;
    bench.pass(seconds(2)).await;
    let (_, snapshot) = bench.duly.served().await.unwrap().remove(0);
    assert_eq!(snapshot.destinations_open, 1);
    target.mend();
    bench.pass(seconds(60)).await;
    let (_, snapshot) = bench.duly.served().await.unwrap().remove(0);
    assert_eq!(snapshot.destinations_open, 0);
    bench.duly.shutdown().await.unwrap();
    let mut reported = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Event::DestinationUnreachable { destination, .. } => {
                reported.push(format!("unreachable {destination}"))
            }
            Event::DestinationRecovered { destination, .. } => {
                reported.push(format!("recovered {destination}"))
            }
            _ => {}
        }
        if reported.len() == 2 {
            break;
        }
    }
    assert_eq!(reported, ["unreachable bad", "recovered bad"]);
}
