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
    failure::not_stored,
    link::{Connection, ConnectionEvent},
};
use crate::Finding;

/// Where JetStream is asked.
const INFO: &str = "$JS.API.INFO";
const NAMES: &str = "$JS.API.STREAM.NAMES";
const LIST: &str = "$JS.API.STREAM.LIST";
/// Streams that are looked at, at most: a page of the server.
const STREAMS_MAX: usize = 256;
/// Streams behind key-value buckets and object stores, to which nobody publishes messages.
const BUCKETS: [&str; 2] = ["KV_", "OBJ_"];
/// A duplicate window below the default of JetStream is a finding, whatever the retries are.
const WINDOW_MIN: Duration = Duration::from_secs(120);

/// With fewer replicas a stream is away when one of its servers is.
const REPLICAS_MIN: usize = 3;

/// An answer of JetStream.
enum ApiReply<T> {
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
    #[serde(default)]
    cluster: Option<Group>,
}

/// The servers that keep a stream; there is one where servers form a cluster.
#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    name: Option<String>,
}

/// Whether there is a JetStream that would answer.
pub(super) async fn is_there(connection: &Connection) -> Result<(), SinkError> {
    ask::<Anything>(connection, INFO, Bytes::new()).await.map(|_| ())
}

/// Whether the server has read all that we sent before, and we hear its answers. Nobody listens to our question, and it says so,
/// or it says that we may not ask.
pub(super) async fn has_read(connection: &Connection) -> Result<(), SinkError> {
    let inbox = connection.client.new_inbox();
    match ask_raw(connection, &inbox, Bytes::new()).await? {
        Ok(_) | Err(RequestErrorKind::NoResponders) => Ok(()),
        Err(kind) => Err(SinkError::unreachable(kind.to_string())),
    }
}

/// Why nobody took what was sent to `subject`: because no stream wants it, or because there is a stream that is away.
pub(super) async fn why_nobody(connection: &Connection, subject: &str) -> SinkError {
    match streams_of(connection, subject).await {
        Ok(ApiReply::Yes(streams)) if streams.is_empty() => SinkError::denied(format!(
            "no stream has the subject {subject:?}: make one, or add it to one that is there"
        )),
        Ok(ApiReply::Yes(_)) => {
            SinkError::unreachable(format!("the stream of the subject {subject:?} is not available now"))
                .at_destination()
        }
        // It may be without a leader for a moment, and nobody's attempts are to be counted on a guess.
        Ok(ApiReply::MayNotAsk) => {
            let detail = format!(
                "no stream took the subject {subject:?}, and this user may not ask why: let it publish to {NAMES}"
            );
            SinkError::unreachable(detail).at_destination()
        }
        // Nobody took it: whatever this answer means, the message is not stored.
        Err(failure) if failure.kind == SinkErrorKind::Unknown => {
            SinkError::unreachable(failure.detail).at_destination()
        }
        Err(failure) => failure,
    }
}

/// Streams that would let a second copy pass, or that never acknowledge; and which of `topics` no stream has.
pub(super) async fn inspect(
    connection: &Connection,
    again: Duration,
    topics: &[&str],
    findings: &mut Vec<Finding>,
) {
    // First what is one question: each topic is one more, and time may run out.
    if let Ok(ApiReply::Yes(listed)) = ask::<Streams>(connection, LIST, Bytes::new()).await {
        let all = listed.streams.unwrap_or_default().into_iter().take(STREAMS_MAX);
        let ours = all.filter(|listed| !BUCKETS.iter().any(|bucket| listed.config.name.starts_with(bucket)));
        let is_clustered =
            |listed: &Listed| listed.cluster.as_ref().is_some_and(|group| group.name.is_some());
        findings.extend(ours.flat_map(|listed| remarks(&listed.config, is_clustered(&listed), again)));
    }
    for topic in topics {
        if matches!(streams_of(connection, topic).await, Ok(ApiReply::Yes(streams)) if streams.is_empty()) {
            let detail = format!("no stream has the subject {topic:?}: its messages are denied");
            findings.push(Finding { detail, remedy: "make a stream, or add it to one that is there".into() });
        }
    }
}

/// The streams that have a subject.
async fn streams_of(connection: &Connection, subject: &str) -> Result<ApiReply<Vec<String>>, SinkError> {
    let question = serde_json::json!({ "subject": subject }).to_string();
    Ok(match ask::<Names>(connection, NAMES, question.into()).await? {
        ApiReply::Yes(names) => ApiReply::Yes(names.streams.unwrap_or_default()),
        ApiReply::MayNotAsk => ApiReply::MayNotAsk,
    })
}

fn remarks(config: &Config, is_clustered: bool, again: Duration) -> Vec<Finding> {
    let (name, window) = (&config.name, config.duplicate_window);
    let mut remarks = Vec::new();
    if config.no_ack {
        let detail =
            format!("the stream {name} is set to acknowledge nothing: no message into it is ever delivered");
        remarks.push(Finding { detail, remedy: "set its no_ack to false".into() });
    }
    // Two of two are a majority: as few may be away as with one.
    if is_clustered && config.num_replicas < REPLICAS_MIN {
        let count = config.num_replicas;
        let detail = format!(
            "the stream {name} has {count} of the cluster's servers: while one of them is away, its messages wait, and what \
             a lost one had is gone with it if it was the only one"
        );
        remarks
            .push(Finding { detail, remedy: format!("nats stream edit {name} --replicas={REPLICAS_MIN}") });
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
        remarks.push(Finding { detail, remedy });
    }
    remarks
}

async fn ask<T: DeserializeOwned>(
    connection: &Connection,
    subject: &str,
    question: Bytes,
) -> Result<ApiReply<T>, SinkError> {
    let answer = match ask_raw(connection, subject, question).await? {
        Ok(Some(answer)) => answer,
        Ok(None) => return Ok(ApiReply::MayNotAsk),
        Err(RequestErrorKind::NoResponders) => {
            return Err(SinkError::unreachable("there is no JetStream here, or it is not ready yet"));
        }
        Err(kind) => return Err(SinkError::unreachable(kind.to_string())),
    };
    match serde_json::from_slice(&answer) {
        Ok(Response::Ok(said)) => Ok(ApiReply::Yes(said)),
        Ok(Response::Err { error }) => Err(not_stored(&error)),
        Err(why) => Err(SinkError::unreachable(format!("an answer that cannot be read: {why}"))),
    }
}

/// The answer to a question; `None` if we may not ask it.
async fn ask_raw(
    connection: &Connection,
    subject: &str,
    question: Bytes,
) -> Result<Result<Option<Bytes>, RequestErrorKind>, SinkError> {
    let mut events = connection.listen();
    let request = Request::new().payload(question).timeout(None);
    let reply = connection.client.send_request(subject.to_owned(), request);
    let event = async {
        loop {
            match events.recv().await {
                Ok(ConnectionEvent::Denied { subject: own, .. }) if own == subject => return Ok(()),
                Ok(ConnectionEvent::Deaf { words }) => return Err(deaf(&words)),
                Ok(ConnectionEvent::Broken) | Err(RecvError::Closed) => {
                    return Err(SinkError::unreachable("the connection was lost"));
                }
                _ => {}
            }
        }
    };
    tokio::select! {
        biased;
        answer = reply => Ok(answer.map(|answer| Some(answer.payload)).map_err(|error| error.kind())),
        event = event => event.map(|()| Ok(None)),
    }
}

fn deaf(words: &str) -> SinkError {
    let detail =
        format!("{words}: give this user the right to subscribe to _INBOX.>, where acknowledgements come");
    SinkError::misconfigured(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_forgets_too_soon_is_named_and_a_good_one_is_not() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let stream = |window| Config { name: "S".into(), duplicate_window: window, ..Config::default() };
        assert!(remarks(&stream(minutes(6)), false, minutes(5)).is_empty());
        let found = remarks(&stream(minutes(2)), false, minutes(5));
        assert!(found.len() == 1 && found[0].detail.contains("the stream S"), "{found:?}");
        assert_eq!(remarks(&stream(minutes(1)), false, Duration::ZERO).len(), 1);
        assert_eq!(remarks(&Config { no_ack: true, ..stream(minutes(6)) }, false, minutes(5)).len(), 1);
    }

    #[test]
    fn a_stream_of_few_servers_of_a_cluster_is_named() {
        let of = |num_replicas| Config {
            name: "S".into(),
            num_replicas,
            duplicate_window: Duration::from_secs(600),
            ..Config::default()
        };
        for few in [1, 2] {
            let found = remarks(&of(few), true, Duration::ZERO);
            assert!(found.len() == 1 && found[0].remedy.contains("--replicas=3"), "{found:?}");
            assert!(remarks(&of(few), false, Duration::ZERO).is_empty(), "a server on its own has no more");
        }
        assert!(remarks(&of(3), true, Duration::ZERO).is_empty());
    }
}
