//! From messages to what is sent, and from answers to outcomes.

use std::{collections::BTreeMap, str};

use async_nats::{
    Client, HeaderMap, HeaderName, HeaderValue, Request,
    jetstream::{publish::PublishAck, response::Response},
};
use bytes::Bytes;
use duly_core::{Delivery, SinkError};
use futures_util::{StreamExt, stream};
use tokio::sync::broadcast::error::RecvError;

use super::{
    Outcome,
    failure::{no_answer, no_connection, not_stored, refused, unanswered},
    link::{News, Wire},
};

/// Messages of one call that are under way at the same time.
const PIPELINE: usize = 1_024;

/// Names that a property cannot have: those that Duly sets, and those by which NATS is told what to do, such as when.
const OURS: &str = "duly-";
const THEIRS: &str = "nats-";
const CONTENT_TYPE: &str = "content-type";

/// A message, ready to be sent.
pub(super) struct Parcel {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// How far one of a call has come.
pub(super) enum Stage {
    /// Not begun.
    Waiting,
    /// On its way.
    Sent,
    /// Nobody took it. Why, JetStream must be asked.
    Nobody,
    Done(Outcome),
}

impl Parcel {
    /// The message in the form of NATS; or why it has none.
    pub(super) fn of(delivery: &Delivery) -> Result<Self, SinkError> {
        let message = &delivery.message;
        let subject = message.topic.as_str();
        if let Some(why) = unfit(subject) {
            return Err(refused(format!("the topic {subject:?} cannot be a subject: {why}")));
        }
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
            let small = name.to_ascii_lowercase();
            if small.starts_with(OURS) || small.starts_with(THEIRS) || small == CONTENT_TYPE {
                let detail = format!("the header {name:?} is not for properties: give this one another name");
                return Err(refused(detail));
            }
            set(&mut headers, name, value)?;
        }
        Ok(Self { subject: subject.into(), headers, body: message.body.to_bytes() })
    }
}

fn set(headers: &mut HeaderMap, name: &str, text: &str) -> Result<(), SinkError> {
    let fault = |what: &str| refused(format!("{what} of {name:?} cannot be in a header of NATS"));
    let header: HeaderName = name.parse().map_err(|_| fault("the name"))?;
    let value: HeaderValue = text.parse().map_err(|_| fault("the value"))?;
    headers.insert(header, value);
    Ok(())
}

/// Why this is no subject to publish to, if it is none.
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

/// Sends all of them and gathers the acknowledgements as they come, into `stages`.
pub(super) async fn publish(wire: &Wire, parcels: Vec<Parcel>, stages: &mut [Stage]) {
    let mut news = wire.listen();
    if wire.is_broken() {
        return;
    }
    let subjects: Vec<String> = parcels.iter().map(|parcel| parcel.subject.clone()).collect();
    let mut begun = 0;
    let mut left = stages.len();
    let asking = parcels.into_iter().enumerate().map(|(place, parcel)| {
        let client = &wire.client;
        async move { (place, ask(client, parcel).await) }
    });
    let mut answers = stream::iter(asking).buffer_unordered(PIPELINE);
    while left > 0 {
        // Those are polled for the first time in order.
        while begun < stages.len().min(stages.len() - left + PIPELINE) {
            stages[begun] = Stage::Sent;
            begun += 1;
        }
        tokio::select! {
            biased;
            Some((place, stage)) = answers.next() => {
                if !matches!(stages[place], Stage::Done(_)) {
                    stages[place] = stage;
                    left -= 1;
                }
            }
            told = news.recv() => match told {
                Ok(News::Denied { subject, words }) => {
                    for (stage, _) in stages.iter_mut().zip(&subjects).filter(|(_, own)| **own == subject) {
                        if matches!(stage, Stage::Sent) {
                            *stage = Stage::Done(Err(refused(words.clone())));
                            left -= 1;
                        }
                    }
                }
                Ok(News::Broken) | Err(RecvError::Closed) => return,
                Err(RecvError::Lagged(_)) => {}
            }
        }
    }
}

async fn ask(client: &Client, parcel: Parcel) -> Stage {
    let request = Request::new().headers(parcel.headers).payload(parcel.body).timeout(None);
    match client.send_request(parcel.subject, request).await {
        Ok(answer) => Stage::Done(read(&answer.payload)),
        Err(error) => unanswered(&error).map_or(Stage::Nobody, |failure| Stage::Done(Err(failure))),
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
            Err(no_answer(format!("somebody answered who is not JetStream: {words:?}")))
        }
    }
}

/// What became of each, in order. `nobody` are the reasons why nobody took what was sent to a subject.
pub(super) fn outcomes(
    stages: Vec<Stage>,
    subjects: &[String],
    nobody: &BTreeMap<String, SinkError>,
) -> Vec<Outcome> {
    let each = stages.into_iter().zip(subjects).map(|(stage, subject)| match stage {
        Stage::Done(outcome) => outcome,
        Stage::Waiting => Err(no_connection("the connection was lost before this was sent")),
        Stage::Sent => Err(no_answer("no acknowledgement in time, or the connection was lost")),
        Stage::Nobody => Err(nobody.get(subject).cloned().unwrap_or_else(|| no_answer("no responders"))),
    });
    each.collect()
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
        assert_eq!(error(503, 10_039), SinkErrorKind::Misconfigured);
        assert_eq!(error(400, 1), SinkErrorKind::Unknown, "nothing is dead-lettered on a guess");
        assert_eq!(kind("hello").unwrap_err(), SinkErrorKind::Unknown);
    }
}
