//! The suite of the [`Sink`] port, and a sink that writes down what it is given.

mod cases;
mod cluster;
mod delivery;
mod isolation;
mod outages;
mod planted;
mod recorder;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use duly_core::{Delivery, MessageId, Sink, StoredMessage, Timestamp};

pub use cases::*;
pub use cluster::{Cluster, a_server_killed_under_load_loses_nothing};
pub use delivery::{failure, message, one, to};
pub use isolation::*;
pub use outages::*;
pub use recorder::Recorder;

/// The far end of a sink under test: the real thing, or as near to it as can be had.
#[async_trait]
pub trait Target: Send + Sync {
    /// A sink that delivers there.
    fn sink(&self) -> Arc<dyn Sink>;

    /// A message that the target takes.
    fn good(&self, id: MessageId) -> StoredMessage {
        StoredMessage::new(id, "target".parse().unwrap(), "topic".parse().unwrap(), Timestamp::from_millis(1))
    }

    /// A message that the target refuses for what it is, or that the sink's `check` refuses.
    fn bad(&self, id: MessageId) -> StoredMessage;

    /// A message that the sink sends and the target refuses. `None`: it cannot be provoked beside others.
    fn refused_there(&self, _id: MessageId) -> Option<StoredMessage> {
        None
    }

    /// Whether it can keep a property without a value, and a body without a byte. If not, a sink refuses what has one.
    fn keeps_what_is_empty(&self) -> bool {
        true
    }

    /// Why the suite cannot show this state of a destination here (`slow`, `silent`, `forbidden` or `full`). `None`: it can, and the
    /// method of that name gives a message.
    fn cannot_show(&self, _state: &str) -> Option<CannotShow> {
        None
    }

    /// A message to a destination that answers only after [`release`](Self::release), while others answer at once. `None`, here
    /// and below: as [`cannot_show`](Self::cannot_show) says.
    async fn slow(&self, _id: MessageId) -> Option<StoredMessage> {
        None
    }

    /// The slow destination answers now, what came before and what comes later.
    async fn release(&self) {}

    /// A message to a destination that never answers, while others do.
    async fn silent(&self, _id: MessageId) -> Option<StoredMessage> {
        None
    }

    /// A message to a destination that takes nothing from this sink, while others do.
    async fn forbidden(&self, _id: MessageId) -> Option<StoredMessage> {
        None
    }

    /// A message to a destination that has no room now, while others have.
    async fn full(&self, _id: MessageId) -> Option<StoredMessage> {
        None
    }

    /// What does not happen within this will not happen.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// What the target has, once for each copy.
    async fn arrived(&self) -> Vec<Arrival>;

    /// The target goes away, with all connections to it.
    async fn stop(&self);

    /// The target comes back to the same place.
    async fn start(&self);
}

/// Why the suite does not show a state at a target: it cannot be had there, or a test of the sink shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CannotShow(pub String);

/// One copy of a message, as the target has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// `duly-id`.
    pub id: MessageId,
    /// `duly-due`.
    pub due: Timestamp,
    /// `duly-attempt`.
    pub attempt: u32,
    /// The topic, as the target knows it.
    pub topic: String,
    /// The tag, wherever the target keeps it.
    pub tag: Option<String>,
    /// The key, wherever the target keeps it.
    pub key: Option<String>,
    /// What the target was told that the body is.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
    /// The properties, and whatever else the target keeps beside them.
    pub properties: BTreeMap<String, String>,
}

impl Arrival {
    /// What should arrive of a delivery.
    pub fn of(delivery: &Delivery) -> Self {
        let message = &delivery.message;
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            id: message.id.clone(),
            due: message.due,
            attempt: delivery.attempt,
            topic: message.topic.to_string(),
            tag: message.tag.as_ref().map(ToString::to_string),
            key: message.key.as_ref().map(ToString::to_string),
            content_type: message.body.kind().mime().to_owned(),
            body: message.body.to_bytes(),
            properties: message.properties.iter().map(pair).collect(),
        }
    }

    /// Whether it is what was sent: everything that was sent, unchanged. A target may add properties of its own.
    fn is(&self, sent: &Self) -> bool {
        let own = |(name, _): &(&String, &String)| sent.properties.contains_key(*name);
        let properties: BTreeMap<_, _> =
            self.properties.iter().filter(own).map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { properties, ..self.clone() } == *sent
    }
}

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

fn deliveries(messages: impl IntoIterator<Item = StoredMessage>) -> Vec<Delivery> {
    messages.into_iter().map(|message| Delivery::new(message, 1)).collect()
}

/// All of `batch` is at the target, each once and unchanged.
async fn assert_arrived(target: &dyn Target, batch: &[Delivery]) {
    let arrived = target.arrived().await;
    for delivery in batch {
        let want = Arrival::of(delivery);
        let copies: Vec<_> = arrived.iter().filter(|arrival| arrival.id == want.id).collect();
        assert_eq!(copies.len(), 1, "{} arrived so many times", want.id);
        assert!(copies[0].is(&want), "sent {want:?}, but {:?} arrived", copies[0]);
    }
}

/// Every case of the [`Sink`] suite as a test of its own, in a module named after the sink. With `if` and a condition, only
/// where it holds: that the server is installed.
#[macro_export]
macro_rules! sink_suite {
    ($name:ident, $target:expr) => {
        $crate::sink_suite!($name, $target, if true);
    };
    ($name:ident, $target:expr, if $there:expr) => {
        mod $name {
            $crate::port_tests!(sink, $target, if $there;
                one_outcome_per_message_in_order
                ok_means_the_target_has_it
                a_refusal_hurts_no_neighbour
                every_field_arrives
                any_body_arrives_unchanged
                unicode_arrives_unchanged
                a_large_batch_arrives_whole
                the_same_message_again_is_no_failure
                a_probe_delivers_nothing
                an_absent_target_is_unreachable_until_it_returns
                calls_at_the_same_time_do_not_mix
                a_call_given_up_leaves_the_sink_usable
                outcomes_are_reported_as_they_become_known
                a_silent_destination_holds_up_no_other
                a_forbidden_destination_fails_alone
                a_full_destination_is_throttled_alone
            );
        }
    };
}

#[cfg(test)]
mod tests {
    crate::sink_suite!(recorder, crate::sink::Recorder::default());

    #[test]
    fn every_line_of_the_contract_has_its_case() {
        let suite = include_str!("mod.rs");
        let here = concat!(
            include_str!("cases.rs"),
            include_str!("outages.rs"),
            include_str!("isolation.rs"),
            include_str!("cluster.rs")
        );
        let lines = crate::contract_lines(include_str!("../../../core/src/sink.rs"), "#[async_trait]");
        assert_eq!(lines.len(), 17);
        assert_eq!(here.matches("pub async fn ").count(), 17, "and every case its line");
        for line in lines {
            assert!(here.contains(&format!("pub async fn {line}(")), "{line} has no case");
            let is_of_clusters = line == "a_server_killed_under_load_loses_nothing";
            let is_in_suite = suite.contains(&format!("                {line}\n"));
            assert!(is_in_suite != is_of_clusters, "{line} is not in the suite");
        }
    }
}
