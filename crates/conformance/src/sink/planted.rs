//! Mistakes that a sink could make: a suite that lets one of them pass proves nothing.
#![cfg(test)]

use std::{
    borrow::Cow,
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    Body, Delivery, MessageId, Outcomes, Properties, Sink, SinkError, SinkErrorKind, StoredMessage,
};

use super::{Arrival, Cluster, Recorder, Target, recorder};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    ForgetsTheLast,
    MixesUpTheOutcomes,
    AcknowledgesUnsent,
    FailsTheWholeBatch,
    CallsARefusalUnknown,
    SendsTwice,
    DropsProperties,
    DropsTheTag,
    ForgetsTheAttempt,
    EndsBodiesAtZero,
    ReadsBodiesAsText,
    TakesHundredAtMost,
    RefusesARepeat,
    DeliversOnProbe,
    CallsAbsenceUnknown,
    ProbesWithoutLooking,
    StaysAwayForGood,
    BreaksWhenDropped,
    WaitsForTheWholeCall,
    SendsOneAfterTheOther,
    TakesOneForTheTarget,
    ThrottlesTheTarget,
    HasOneDestination,
    GivesUpTheSilentFirst,
    LetsCallsWaitForTheSilent,
    DeniesInAnOutage,
    AcknowledgesInAnOutage,
}

const ALL: [Bug; 27] = [
    Bug::ForgetsTheLast,
    Bug::MixesUpTheOutcomes,
    Bug::AcknowledgesUnsent,
    Bug::FailsTheWholeBatch,
    Bug::CallsARefusalUnknown,
    Bug::SendsTwice,
    Bug::DropsProperties,
    Bug::DropsTheTag,
    Bug::ForgetsTheAttempt,
    Bug::EndsBodiesAtZero,
    Bug::ReadsBodiesAsText,
    Bug::TakesHundredAtMost,
    Bug::RefusesARepeat,
    Bug::DeliversOnProbe,
    Bug::CallsAbsenceUnknown,
    Bug::ProbesWithoutLooking,
    Bug::StaysAwayForGood,
    Bug::BreaksWhenDropped,
    Bug::WaitsForTheWholeCall,
    Bug::SendsOneAfterTheOther,
    Bug::TakesOneForTheTarget,
    Bug::ThrottlesTheTarget,
    Bug::HasOneDestination,
    Bug::GivesUpTheSilentFirst,
    Bug::LetsCallsWaitForTheSilent,
    Bug::DeniesInAnOutage,
    Bug::AcknowledgesInAnOutage,
];

/// Destinations that do otherwise than the rest.
const APART: [&str; 4] = [recorder::SLOW, recorder::SILENT, recorder::FORBIDDEN, recorder::FULL];

/// A recorder behind a sink with a bug in it, or without one.
#[derive(Clone)]
struct Planted {
    inner: Recorder,
    bug: Option<Bug>,
    broken: Arc<AtomicBool>,
    /// Held by a call to a silent destination, with [`Bug::LetsCallsWaitForTheSilent`].
    silent: Arc<tokio::sync::Mutex<()>>,
}

fn is_silent(delivery: &Delivery) -> bool {
    delivery.message.topic.as_str() == recorder::SILENT
}

fn error(kind: SinkErrorKind) -> SinkError {
    SinkError::new(kind, "planted")
}

impl Planted {
    fn spoilt(&self, delivery: &Delivery) -> Delivery {
        let mut delivery = delivery.clone();
        let message = &mut delivery.message;
        let bytes = message.body.as_bytes();
        match self.bug {
            Some(Bug::DropsProperties) => message.properties = Properties::default(),
            Some(Bug::DropsTheTag) => message.tag = None,
            Some(Bug::ForgetsTheAttempt) => delivery.attempt = 1,
            Some(Bug::EndsBodiesAtZero) => {
                let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                message.body = Body::from_parts(message.body.kind(), bytes[..end].to_vec());
            }
            Some(Bug::ReadsBodiesAsText) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                message.body = Body::from_parts(message.body.kind(), text);
            }
            _ => {}
        }
        delivery
    }

    async fn spoilt_outcomes(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        let spoilt: Vec<_> = batch.iter().map(|delivery| self.spoilt(delivery)).collect();
        let mut outcomes = self.inner.deliver(&spoilt).await;
        match self.bug {
            Some(Bug::ForgetsTheLast) => drop(outcomes.pop()),
            Some(Bug::MixesUpTheOutcomes) => outcomes.reverse(),
            Some(Bug::FailsTheWholeBatch) if outcomes.iter().any(Result::is_err) => {
                outcomes.fill(Err(error(SinkErrorKind::Refused)));
            }
            Some(Bug::SendsTwice) => drop(self.inner.deliver(&spoilt).await),
            Some(Bug::AcknowledgesInAnOutage) if self.inner.is_leaderless() => {
                outcomes.fill(Ok(String::new()));
            }
            _ => {}
        }
        for failure in outcomes.iter_mut().filter_map(|outcome| outcome.as_mut().err()) {
            match (self.bug, failure.kind) {
                (Some(Bug::CallsARefusalUnknown), SinkErrorKind::Refused)
                | (Some(Bug::CallsAbsenceUnknown), SinkErrorKind::Unreachable) => {
                    failure.kind = SinkErrorKind::Unknown;
                }
                (Some(Bug::StaysAwayForGood), SinkErrorKind::Unreachable) => {
                    self.broken.store(true, Ordering::SeqCst);
                }
                (Some(Bug::DeniesInAnOutage), SinkErrorKind::Unreachable) => {
                    failure.kind = SinkErrorKind::Denied;
                }
                _ => {}
            }
        }
        outcomes
    }
}

impl Planted {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        if self.broken.load(Ordering::SeqCst) {
            return vec![Err(error(SinkErrorKind::Unreachable)); batch.len()];
        }
        if self.bug == Some(Bug::BreaksWhenDropped) {
            self.broken.store(true, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.broken.store(false, Ordering::SeqCst);
        }
        let known = self.inner.ids();
        let repeats = batch.iter().any(|delivery| known.contains(&delivery.message.id));
        match self.bug {
            Some(Bug::AcknowledgesUnsent) => {
                let outcomes = batch.iter().map(|delivery| match delivery.message.topic.as_str() {
                    "refused" => Err(error(SinkErrorKind::Refused)),
                    _ => Ok(String::new()),
                });
                outcomes.collect()
            }
            Some(Bug::TakesHundredAtMost) if batch.len() > 100 => {
                vec![Err(error(SinkErrorKind::Unknown)); batch.len()]
            }
            Some(Bug::RefusesARepeat) if repeats => vec![Err(error(SinkErrorKind::Refused)); batch.len()],
            _ => self.spoilt_outcomes(batch).await,
        }
    }
}

impl Planted {
    /// With something in the batch that is not known at once, or that is about its destination.
    async fn send_apart(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        match self.bug {
            Some(Bug::WaitsForTheWholeCall) => outcomes.report_all(self.inner.deliver(batch).await),
            // The time limit of the silent ones is over, and only then the others are looked at.
            Some(Bug::GivesUpTheSilentFirst) if is_silent(&batch[0]) => {
                for index in [0, batch.len() - 1] {
                    outcomes.report(index, Err(error(SinkErrorKind::Unknown).at_destination()));
                }
                let goods = self.inner.deliver(&batch[1..batch.len() - 1]).await;
                goods.into_iter().enumerate().for_each(|(index, good)| outcomes.report(index + 1, good));
                std::future::pending::<()>().await;
            }
            Some(Bug::LetsCallsWaitForTheSilent) if is_silent(&batch[0]) => {
                let _held = self.silent.lock().await;
                self.inner.deliver_each(batch, outcomes).await;
            }
            Some(Bug::SendsOneAfterTheOther) => {
                for (index, delivery) in batch.iter().enumerate() {
                    let one = self.inner.deliver(std::slice::from_ref(delivery)).await;
                    one.into_iter().for_each(|result| outcomes.report(index, result));
                }
            }
            _ => {
                let report = |index: usize, result: Result<String, SinkError>| {
                    let spoilt = result.map_err(|failure| match (self.bug, failure.kind) {
                        (Some(Bug::TakesOneForTheTarget), SinkErrorKind::Denied) => {
                            error(SinkErrorKind::Misconfigured)
                        }
                        (Some(Bug::ThrottlesTheTarget), SinkErrorKind::Throttled) => error(failure.kind),
                        _ => failure,
                    });
                    outcomes.report(index, spoilt);
                };
                self.inner.deliver_each(batch, &Outcomes::new(&report)).await;
            }
        }
    }
}

#[async_trait]
impl Sink for Planted {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let is_apart = |delivery: &Delivery| APART.contains(&delivery.message.topic.as_str());
        if batch.iter().any(is_apart) {
            return self.send_apart(batch, outcomes).await;
        }
        let _turn = self.silent.lock().await;
        outcomes.report_all(self.send_all(batch).await);
    }

    fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        match self.bug {
            Some(Bug::HasOneDestination) => Cow::Borrowed("all"),
            _ => self.inner.destination(message),
        }
    }

    async fn probe(&self) -> Result<(), SinkError> {
        if self.bug == Some(Bug::DeliversOnProbe) {
            let ping = Target::good(&self.inner, super::id("ping"));
            self.inner.deliver(&super::deliveries([ping])).await;
        }
        if self.bug == Some(Bug::ProbesWithoutLooking) { Ok(()) } else { self.inner.probe().await }
    }
}

#[async_trait]
impl Target for Planted {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }
    fn bad(&self, id: MessageId) -> StoredMessage {
        self.inner.bad(id)
    }
    async fn slow(&self, id: MessageId) -> Option<StoredMessage> {
        self.inner.slow(id).await
    }
    async fn release(&self) {
        self.inner.release().await;
    }
    async fn silent(&self, id: MessageId) -> Option<StoredMessage> {
        self.inner.silent(id).await
    }
    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        self.inner.forbidden(id).await
    }
    async fn full(&self, id: MessageId) -> Option<StoredMessage> {
        self.inner.full(id).await
    }
    fn patience(&self) -> Duration {
        // All that this sink does, it does at once.
        Duration::from_millis(200)
    }
    async fn arrived(&self) -> Vec<Arrival> {
        self.inner.arrived().await
    }
    async fn stop(&self) {
        self.inner.stop().await;
    }
    async fn start(&self) {
        self.inner.start().await;
    }
}

#[async_trait]
impl Cluster for Planted {
    fn sink(&self) -> Arc<dyn Sink> {
        Target::sink(self)
    }
    fn good(&self, id: MessageId) -> StoredMessage {
        Target::good(self, id)
    }
    async fn kill_one(&self) {
        self.inner.kill_one().await;
    }
    async fn restore(&self) {
        self.inner.restore().await;
    }
    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }
    async fn ids(&self) -> BTreeSet<MessageId> {
        self.inner.ids()
    }
}

type Case = for<'a> fn(&'a Planted) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! cases {
    ($($name:ident)*) => { [$((stringify!($name), |target| Box::pin(super::$name(target)))),*] };
}

const CASES: [(&str, Case); 17] = cases!(
    one_outcome_per_message_in_order ok_means_the_target_has_it a_refusal_hurts_no_neighbour every_field_arrives
    any_body_arrives_unchanged unicode_arrives_unchanged a_large_batch_arrives_whole
    the_same_message_again_is_no_failure a_probe_delivers_nothing an_absent_target_is_unreachable_until_it_returns
    calls_at_the_same_time_do_not_mix a_call_given_up_leaves_the_sink_usable
    outcomes_are_reported_as_they_become_known a_silent_destination_holds_up_no_other
    a_forbidden_destination_fails_alone a_full_destination_is_throttled_alone
    a_server_killed_under_load_loses_nothing
);

/// The cases that fail with `bug` planted.
fn caught(bug: Option<Bug>) -> Vec<&'static str> {
    let fails = |(_, run): &&(&str, Case)| {
        let inner = Recorder::default();
        let target = Planted { inner, bug, broken: Arc::default(), silent: Arc::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(&target)))).is_err()
    };
    CASES.iter().filter(fails).map(|(name, _)| *name).collect()
}

#[test]
fn the_suite_catches_every_planted_bug() {
    for bug in ALL {
        let cases = caught(Some(bug));
        println!("{bug:?}: {cases:?}");
        assert!(!cases.is_empty(), "no case of the suite catches {bug:?}");
    }
}

#[test]
fn nothing_planted_nothing_caught() {
    assert_eq!(caught(None), [""; 0]);
}
