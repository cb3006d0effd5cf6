//! Questions to the server that deliver nothing.

use std::time::Duration;

use async_nats::{
    Request,
    client::RequestErrorKind,
    jetstream::{response::Response, stream::Config},
};
use bytes::Bytes;
use duly_core::{SinkError, SinkErrorKind};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::sync::broadcast::error::RecvError;

use super::{
    failure::{no_connection, not_stored, refused},
    link::{News, Wire},
};
use crate::Remark;

/// Where JetStream is asked.
const INFO: &str = "$JS.API.INFO";
const NAMES: &str = "$JS.API.STREAM.NAMES";
const LIST: &str = "$JS.API.STREAM.LIST";
/// Streams that are looked at, at most: a page of the server.
const STREAMS_MAX: usize = 256;
/// Streams behind key-value buckets and object stores, to which nobody publishes messages.
const BUCKETS: [&str; 2] = ["KV_", "OBJ_"];
/// A shorter memory for duplicates than the usual of JetStream is worth a word whatever the retries are.
const WINDOW_MIN: Duration = Duration::from_secs(120);

/// An answer of JetStream.
enum Said<T> {
    Yes(T),
    /// The account lets us publish and not ask.
    MayNotAsk,
}

/// Of an answer nothing but that it came.
#[derive(Deserialize)]
struct Anything {}

#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    streams: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Streams {
    #[serde(default)]
    streams: Option<Vec<Listed>>,
}

#[derive(Deserialize)]
struct Listed {
    config: Config,
}

/// Whether there is a JetStream that would answer.
pub(super) async fn is_there(wire: &Wire) -> Result<(), SinkError> {
    ask::<Anything>(wire, INFO, Bytes::new()).await.map(|_| ())
}

/// Whether the server has read all that we sent before. Nobody listens to our question, and it says so.
pub(super) async fn has_read(wire: &Wire) -> Result<(), SinkError> {
    let request = Request::new().timeout(None);
    match wire.client.send_request(wire.client.new_inbox(), request).await {
        Err(error) if error.kind() != RequestErrorKind::NoResponders => Err(no_connection(error.to_string())),
        _ => Ok(()),
    }
}

/// Why nobody took what was sent to `subject`: because no stream wants it, or because there is a stream that is away.
pub(super) async fn why_nobody(wire: &Wire, subject: &str) -> SinkError {
    let question = serde_json::json!({ "subject": subject }).to_string();
    match ask::<Names>(wire, NAMES, question.into()).await {
        Ok(Said::Yes(names)) if names.streams.as_ref().is_none_or(Vec::is_empty) => refused(format!(
            "no stream has the subject {subject:?}: make one, or add it to one that is there"
        )),
        Ok(Said::Yes(_)) => {
            no_connection(format!("the stream of the subject {subject:?} is not available now"))
        }
        Ok(Said::MayNotAsk) => {
            let detail = format!("no stream took the subject {subject:?}, and this user may not ask why");
            SinkError::new(SinkErrorKind::Unknown, detail)
        }
        Err(failure) => failure,
    }
}

/// Streams that would let a second copy pass, or that never acknowledge.
pub(super) async fn look(wire: &Wire, again: Duration) -> Vec<Remark> {
    let Ok(Said::Yes(listed)) = ask::<Streams>(wire, LIST, Bytes::new()).await else { return Vec::new() };
    let all = listed.streams.unwrap_or_default().into_iter().take(STREAMS_MAX).map(|listed| listed.config);
    let ours = all.filter(|config| !BUCKETS.iter().any(|bucket| config.name.starts_with(bucket)));
    ours.flat_map(|config| remarks(&config, again)).collect()
}

fn remarks(config: &Config, again: Duration) -> Vec<Remark> {
    let (name, window) = (&config.name, config.duplicate_window);
    let mut remarks = Vec::new();
    if config.no_ack {
        let detail =
            format!("the stream {name} is set to acknowledge nothing: no message into it is ever delivered");
        remarks.push(Remark { detail, remedy: "set its no_ack to false".into() });
    }
    let need = again.max(WINDOW_MIN);
    if window < need {
        let detail = format!(
            "the stream {name} knows a message again for {window:?}, and one whose acknowledgement got lost may be tried \
             again {need:?} later: it could be there twice"
        );
        let seconds = need.as_secs();
        let remedy =
            format!("nats stream edit {name} --dupe-window={seconds}s, or shorten the sink's retry.max");
        remarks.push(Remark { detail, remedy });
    }
    remarks
}

async fn ask<T: DeserializeOwned>(wire: &Wire, subject: &str, question: Bytes) -> Result<Said<T>, SinkError> {
    let mut news = wire.listen();
    let request = Request::new().payload(question).timeout(None);
    let asked = wire.client.send_request(subject.to_owned(), request);
    let denied = async {
        loop {
            match news.recv().await {
                Ok(News::Denied { subject: own, .. }) if own == subject => return true,
                Ok(News::Broken) | Err(RecvError::Closed) => return false,
                _ => {}
            }
        }
    };
    let answer = tokio::select! {
        biased;
        answer = asked => answer,
        denied = denied => {
            return if denied { Ok(Said::MayNotAsk) } else { Err(no_connection("the connection was lost")) };
        }
    };
    let answer = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => {
            SinkError::new(SinkErrorKind::Unreachable, "there is no JetStream here, or it is not ready yet")
        }
        _ => no_connection(error.to_string()),
    })?;
    match serde_json::from_slice(&answer.payload) {
        Ok(Response::Ok(said)) => Ok(Said::Yes(said)),
        Ok(Response::Err { error }) => Err(not_stored(&error)),
        Err(why) => Err(no_connection(format!("an answer that cannot be read: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_forgets_too_soon_is_named_and_a_good_one_is_not() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let stream = |window| Config { name: "S".into(), duplicate_window: window, ..Config::default() };
        assert!(remarks(&stream(minutes(6)), minutes(5)).is_empty());
        let found = remarks(&stream(minutes(2)), minutes(5));
        assert!(found.len() == 1 && found[0].detail.contains("the stream S"), "{found:?}");
        assert_eq!(remarks(&stream(minutes(1)), Duration::ZERO).len(), 1);
        assert_eq!(remarks(&Config { no_ack: true, ..stream(minutes(6)) }, minutes(5)).len(), 1);
    }
}
