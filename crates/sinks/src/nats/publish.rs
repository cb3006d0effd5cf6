//! Publishes the messages of a call, and turns acknowledgements into outcomes.

use std::{
    collections::HashMap,
    pin::Pin,
    str,
    sync::{Arc, Mutex, PoisonError},
};

use async_nats::{
    HeaderMap, HeaderName, HeaderValue, Request,
    jetstream::{publish::PublishAck, response::Response},
};
use bytes::Bytes;
use duly_core::{Delivery, ErrorCode, Invalid, Outcomes, SinkError, StoredMessage};
use futures_util::{StreamExt, stream};
use tokio::sync::{OnceCell, broadcast::error::RecvError};

use super::{
    Outcome,
    ask::why_nobody,
    failure::{not_stored, unanswered},
    link::{Connection, ConnectionEvent},
};

/// Messages of one call that are under way at the same time.
const PIPELINE: usize = 1_024;

/// Names that a property cannot have: those that Duly sets, and those by which NATS is told what to do, such as when.
const OURS: &str = "duly-";
const THEIRS: &str = "nats-";
const CONTENT_TYPE: &str = "content-type";

/// A message, ready to be sent.
pub(super) struct OutgoingMessage {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The reason that this message is invalid for every server, if there is one.
pub(super) fn check(message: &StoredMessage) -> Result<(), Invalid> {
    let subject = message.topic.as_str();
    if let Some(why) = unfit(subject) {
        let detail = format!("the topic {subject:?} cannot be a subject: {why}");
        return Err(Invalid::new(ErrorCode::BadTopic, "topic", detail));
    }
    for (name, value) in message.properties.iter() {
        let small = name.to_ascii_lowercase();
        if small.starts_with(OURS) || small.starts_with(THEIRS) || small == CONTENT_TYPE {
            let detail = format!("the header {name:?} is not for properties: give this one another name");
            return Err(Invalid::property(name, detail));
        }
        header(name, value)?;
    }
    Ok(())
}

impl OutgoingMessage {
    /// Encodes the message for NATS.
    pub(super) fn of(delivery: &Delivery) -> Result<Self, Invalid> {
        let message = &delivery.message;
        check(message)?;
        let subject = message.topic.as_str();
        let mut headers = HeaderMap::new();
        let ours = [
            ("Nats-Msg-Id", message.id.as_str().to_owned()),
            ("duly-id", message.id.as_str().to_owned()),
            ("duly-due", message.due.as_millis().to_string()),
            ("duly-attempt", delivery.attempt.to_string()),
            (CONTENT_TYPE, message.body.kind().mime().to_owned()),
        ];
        for (name, value) in ours {
            set(&mut headers, name, &value)?;
        }
        if let Some(tag) = &message.tag {
            set(&mut headers, "duly-tag", tag.as_str())?;
        }
        if let Some(key) = &message.key {
            set(&mut headers, "duly-key", key.as_str())?;
        }
        for (name, value) in message.properties.iter() {
            set(&mut headers, name, value)?;
        }
        Ok(Self { subject: subject.into(), headers, body: message.body.to_bytes() })
    }
}

fn set(headers: &mut HeaderMap, name: &str, text: &str) -> Result<(), Invalid> {
    let (name, value) = header(name, text)?;
    headers.insert(name, value);
    Ok(())
}

fn header(name: &str, text: &str) -> Result<(HeaderName, HeaderValue), Invalid> {
    let fault =
        |what: &str| Invalid::property(name, format!("{what} of {name:?} cannot be in a header of NATS"));
    Ok((name.parse().map_err(|_| fault("the name"))?, text.parse().map_err(|_| fault("the value"))?))
}

/// The reason that this is not a subject to publish to, if there is one.
fn unfit(subject: &str) -> Option<&'static str> {
    if subject.starts_with('$') {
        return Some("what begins with $ is for NATS itself");
    }
    if subject.chars().any(|sign| sign.is_whitespace() || sign.is_control()) {
        return Some("it has a space or a control character in it");
    }
    subject.split('.').find_map(|token| match token {
        "" => Some("there is nothing before, after or between its dots"),
        "*" | ">" => Some("it has a wildcard in it"),
        _ => None,
    })
}

/// Progress of one message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not sent.
    Waiting,
    /// Sent, not acknowledged.
    Sent,
    /// Reported.
    Done,
}

/// The messages of a call: of each its index in the batch, its subject, and how far it has come.
pub(super) struct Publication<'a> {
    indexes: Vec<usize>,
    subjects: Vec<String>,
    stages: Vec<Stage>,
    left: usize,
    outcomes: &'a Outcomes<'a>,
    connection: &'a Connection,
}

impl<'a> Publication<'a> {
    pub(super) fn new(
        messages: &[(usize, OutgoingMessage)],
        outcomes: &'a Outcomes<'a>,
        connection: &'a Connection,
    ) -> Self {
        let indexes: Vec<_> = messages.iter().map(|(index, _)| *index).collect();
        let subjects = messages.iter().map(|(_, message)| message.subject.clone()).collect();
        let (stages, left) = (vec![Stage::Waiting; indexes.len()], indexes.len());
        Self { indexes, subjects, stages, left, outcomes, connection }
    }

    /// Sends all of them and reports the acknowledgements as they come. `why_within` is the time in which JetStream must say why
    /// nobody took a message.
    pub(super) async fn send(
        &mut self,
        messages: Vec<(usize, OutgoingMessage)>,
        why_within: impl Fn() -> Pause,
    ) {
        let connection = self.connection;
        let mut events = connection.listen();
        if connection.is_broken() {
            return;
        }
        let no_responders = NoResponders { connection, pause: &why_within, known: Mutex::default() };
        let asking = messages.into_iter().enumerate().map(|(position, (_, message))| {
            let no_responders = &no_responders;
            async move { (position, ask(message, no_responders).await) }
        });
        let mut answers = stream::iter(asking).buffer_unordered(PIPELINE);
        let mut begun = 0;
        while self.left > 0 {
            // The futures are polled for the first time in order.
            while begun < self.stages.len().min(self.stages.len() - self.left + PIPELINE) {
                if self.stages[begun] == Stage::Waiting {
                    self.stages[begun] = Stage::Sent;
                }
                begun += 1;
            }
            tokio::select! {
                biased;
                Some((position, outcome)) = answers.next() => self.end(position, outcome),
                event = events.recv() => match event {
                    Ok(ConnectionEvent::Denied { subject, words }) => self.denied(&subject, &words),
                    Ok(ConnectionEvent::Broken | ConnectionEvent::Deaf { .. }) | Err(RecvError::Closed) => return,
                    Err(RecvError::Lagged(_)) => {}
                }
            }
        }
    }

    fn end(&mut self, position: usize, outcome: Outcome) {
        if self.stages[position] != Stage::Done {
            self.stages[position] = Stage::Done;
            self.left -= 1;
            self.outcomes.report(self.indexes[position], outcome);
        }
    }

    /// A denial of a subject concerns all messages to it.
    fn denied(&mut self, subject: &str, words: &str) {
        for position in 0..self.subjects.len() {
            if self.stages[position] == Stage::Sent && self.subjects[position] == subject {
                self.connection.give_up(1);
                self.end(position, Err(SinkError::denied(words)));
            }
        }
    }

    /// Whether some were sent and not answered.
    pub(super) fn has_unanswered(&self) -> bool {
        self.stages.contains(&Stage::Sent)
    }

    /// Ends the publication. Messages that were sent and not acknowledged get the error `silent`.
    pub(super) fn give_up(mut self, silent: &SinkError) {
        for position in 0..self.stages.len() {
            match self.stages[position] {
                Stage::Waiting => {
                    self.end(
                        position,
                        Err(SinkError::unreachable("the connection was lost before this was sent")),
                    );
                }
                Stage::Sent => {
                    self.connection.give_up(1);
                    self.end(position, Err(silent.clone()));
                }
                Stage::Done => {}
            }
        }
    }
}

impl Drop for Publication<'_> {
    /// A call may be given up at any moment.
    fn drop(&mut self) {
        self.connection.give_up(self.stages.iter().filter(|stage| **stage == Stage::Sent).count());
    }
}

/// A pause by the clock of the sink.
pub(super) type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Finds out why no stream acknowledged a subject: one question for each subject of a call.
struct NoResponders<'a, P> {
    connection: &'a Connection,
    pause: &'a P,
    known: Mutex<HashMap<String, Arc<OnceCell<SinkError>>>>,
}

impl<P: Fn() -> Pause> NoResponders<'_, P> {
    async fn why(&self, subject: &str) -> SinkError {
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(subject.to_owned()).or_default().clone()
        };
        let why = cell.get_or_init(|| async {
            tokio::select! {
                biased;
                why = why_nobody(self.connection, subject) => why,
                () = (self.pause)() => {
                    SinkError::unreachable("no stream took it, and JetStream does not say why").at_destination()
                }
            }
        });
        why.await.clone()
    }
}

async fn ask<P: Fn() -> Pause>(message: OutgoingMessage, no_responders: &NoResponders<'_, P>) -> Outcome {
    let OutgoingMessage { subject, headers, body } = message;
    let request = Request::new().headers(headers).payload(body).timeout(None);
    match no_responders.connection.client.send_request(subject.clone(), request).await {
        Ok(answer) => read(&answer.payload),
        Err(error) => match unanswered(&error) {
            Some(failure) => Err(failure),
            None => Err(no_responders.why(&subject).await),
        },
    }
}

/// The receipt names stream and sequence.
fn read(answer: &[u8]) -> Outcome {
    match serde_json::from_slice::<Response<PublishAck>>(answer) {
        Ok(Response::Ok(ack)) if ack.duplicate => Ok(format!("{}:{} duplicate", ack.stream, ack.sequence)),
        Ok(Response::Ok(ack)) => Ok(format!("{}:{}", ack.stream, ack.sequence)),
        Ok(Response::Err { error }) => Err(not_stored(&error)),
        Err(_) => {
            let words: String = str::from_utf8(answer).unwrap_or_default().chars().take(200).collect();
            Err(SinkError::unknown(format!("somebody answered who is not JetStream: {words:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use duly_core::SinkErrorKind;

    use super::*;

    #[test]
    fn a_topic_that_is_no_subject_is_told_apart() {
        for subject in ["orders", "orders.paid", "a/b", "订单.新", "a*b"] {
            assert_eq!(unfit(subject), None, "{subject}");
        }
        for subject in ["", ".", "a..b", "a.", "a b", "a.*", ">", "$JS.API.INFO"] {
            assert!(unfit(subject).is_some(), "{subject}");
        }
    }

    #[test]
    fn answers_are_sorted_by_what_comes_next() {
        let kind = |answer: &str| read(answer.as_bytes()).map_err(|error| error.kind);
        assert_eq!(kind(r#"{"stream":"S","seq":7}"#), Ok("S:7".into()));
        assert_eq!(kind(r#"{"stream":"S","seq":7,"duplicate":true}"#), Ok("S:7 duplicate".into()));
        let error = |status: u32, code: u32| {
            let words = format!(r#"{{"error":{{"code":{status},"err_code":{code},"description":"no"}}}}"#);
            kind(&words).unwrap_err()
        };
        assert_eq!(error(400, 10_054), SinkErrorKind::Refused);
        assert_eq!(error(503, 10_077), SinkErrorKind::Throttled);
        assert_eq!(error(503, 10_008), SinkErrorKind::Unreachable);
        assert_eq!(error(409, 10_158), SinkErrorKind::Unreachable, "an earlier try is not decided");
        assert_eq!(error(503, 10_039), SinkErrorKind::Misconfigured);
        assert_eq!(error(400, 1), SinkErrorKind::Unknown, "nothing is dead-lettered on a guess");
        assert_eq!(kind("hello").unwrap_err(), SinkErrorKind::Unknown);
    }
}
