//! The script that appends once, and what is handed to it.

use std::time::Duration;

use duly_core::{Delivery, ErrorCode, Fence, Invalid, StoredMessage};
use futures_util::{Stream, stream::FuturesUnordered};
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind, Value};

use super::{failure::OF_KEY, link::Connection, settings::Settings, slot};
use crate::Finding;

const SCRIPT: &str = include_str!("append.lua");

/// Fields that every entry has; those of Duly begin with `duly-` besides.
const BODY: &str = "body";
const CONTENT_TYPE: &str = "content-type";
const OURS: &str = "duly-";

/// Lua hands on at most some 8,000 values at once: two for each property.
const PROPERTIES_MAX: usize = 3_500;

/// How long a message is remembered that needed several tries: an earlier one may still be on its way, in some buffer.
const LINGER: Duration = Duration::from_secs(300);

/// Messages that one pipeline carries, and whose outcomes are known together.
const SLICE: usize = 32;

/// Some of a call that were answered, each with its place.
pub(super) type Slice = Vec<(usize, Result<String, RedisError>)>;

/// The script, and what it is always told.
pub(super) struct Append {
    script: Script,
    remember_ms: u64,
    max_len: u64,
    max_age_ms: u64,
}

/// Why this message fits into no stream, if it does not.
pub(super) fn check(message: &StoredMessage) -> Result<(), Invalid> {
    let properties = &message.properties;
    if let Some(detail) = reserved(message.topic.as_str()) {
        return Err(Invalid::new(ErrorCode::ReservedTopic, "topic", detail));
    }
    if properties.len() > PROPERTIES_MAX {
        let detail = format!("{} properties, and {PROPERTIES_MAX} fit", properties.len());
        return Err(Invalid::new(ErrorCode::TooManyProperties, "properties", detail));
    }
    let is_taken = |name: &str| name == BODY || name == CONTENT_TYPE || name.starts_with(OURS);
    match properties.iter().find(|(name, _)| is_taken(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let detail = format!("an entry has the field {name:?} already: give the property another name");
            Err(Invalid::property(name, detail))
        }
    }
}

/// Why no stream may have this name, if none may.
fn reserved(topic: &str) -> Option<String> {
    let owner = redis_link::reserved_for(topic)?;
    Some(format!("{topic:?} names a key that {owner} keeps itself: choose another topic"))
}

impl Append {
    pub(super) fn new(settings: &Settings) -> Self {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            script: Script::new(SCRIPT),
            remember_ms: millis(settings.remember),
            max_len: settings.max_len.unwrap_or(0),
            max_age_ms: settings.max_age.map_or(0, millis),
        }
    }

    /// The script's name.
    pub(super) fn sha(&self) -> &str {
        self.script.get_hash()
    }

    /// Appends all of them. Each item holds some, by their places, as soon as they are answered: the id of an entry, or why not.
    pub(super) fn send<'a>(
        &'a self,
        connection: &'a Connection,
        batch: &'a [&'a Delivery],
    ) -> impl Stream<Item = Slice> + 'a {
        let size = if connection.is_cluster() { 1 } else { SLICE };
        let positions: Vec<usize> = (0..batch.len()).collect();
        let slices: Vec<Vec<usize>> = positions.chunks(size).map(<[usize]>::to_vec).collect();
        slices
            .into_iter()
            .map(|positions| self.send_slice(connection.clone(), batch, positions))
            .collect::<FuturesUnordered<_>>()
    }

    async fn send_slice(
        &self,
        mut connection: Connection,
        batch: &[&Delivery],
        positions: Vec<usize>,
    ) -> Slice {
        let all =
            positions.iter().map(|position| self.command("EVALSHA", self.sha(), batch[*position])).collect();
        let mut answers = connection.ask(all).await;
        // Redis restarted, or somebody emptied its scripts. These did nothing, and the text brings the script back.
        let unknown: Vec<usize> = (0..answers.len()).filter(|n| is_unknown(&answers[*n])).collect();
        if !unknown.is_empty() {
            let again = unknown.iter().map(|n| self.command("EVAL", SCRIPT, batch[positions[*n]])).collect();
            for (n, answer) in unknown.iter().zip(connection.ask(again).await) {
                answers[*n] = answer;
            }
        }
        let entries = answers.into_iter().map(|answer| Ok(String::from_redis_value(answer?)?));
        positions.into_iter().zip(entries).collect()
    }

    /// Whether it is the right to the keys beside the stream that this message lacks, and not that to the stream.
    pub(super) async fn lacks_keys_beside(&self, mut connection: Connection, delivery: &Delivery) -> bool {
        let (marker, rights) = (marker(delivery), slot::rights(delivery.message.topic.as_str()));
        let (mut both, mut one, mut other) = (redis::cmd("EVAL"), redis::cmd("GETEX"), redis::cmd("HGET"));
        both.arg("return 1").arg(2).arg(&marker).arg(&rights);
        // For a user that may run EVALSHA and not EVAL.
        one.arg(&marker);
        other.arg(&rights).arg("");
        let answers = connection.ask(vec![both, one, other]).await;
        answers.iter().any(|answer| answer.as_ref().is_err_and(is_of_keys))
    }

    /// Why messages to a stream would not be taken, if it is so and can be asked. Nothing is written.
    pub(super) async fn inspect(&self, connection: &mut Connection, stream: &str) -> Option<Finding> {
        let (marker, rights) = (slot::marker(stream, "duly"), slot::rights(stream));
        let (mut script, mut kind) = (redis::cmd("EVAL"), redis::cmd("TYPE"));
        script.arg("return 1").arg(3).arg(stream).arg(&marker).arg(&rights);
        kind.arg(stream);
        let [script, kind] = <[_; 2]>::try_from(connection.ask(vec![script, kind]).await).ok()?;
        let (detail, remedy) = match (script, kind.and_then(|kind| Ok(String::from_redis_value(kind)?))) {
            (Err(error), _) if is_of_keys(&error) => (
                format!(
                    "this user may not write the stream {stream:?}, or the keys that Duly keeps beside it: {error}"
                ),
                format!("ACL SETUSER … ~{stream} ~duly:mark:* ~duly:rights:*"),
            ),
            (_, Ok(kind)) if kind != "none" && kind != "stream" => (
                format!("the key {stream:?} is a {kind} and no stream: its messages are denied"),
                "delete it, or choose another topic".to_owned(),
            ),
            _ => return None,
        };
        Some(Finding { detail, remedy })
    }

    fn command(&self, how: &str, script: &str, delivery: &Delivery) -> Cmd {
        let message = &delivery.message;
        let mut command = redis::cmd(how);
        let stream = message.topic.as_str();
        command.arg(script).arg(3).arg(stream).arg(marker(delivery)).arg(slot::rights(stream));
        command.arg(self.remember_ms).arg(format!("{:016x}", message.content_hash()));
        command.arg(self.max_len).arg(self.max_age_ms);
        match &delivery.fence {
            Some(Fence { scope, token }) => command.arg(&**scope).arg(*token),
            None => command.arg("").arg(0),
        };
        command.arg(BODY).arg(message.body.as_bytes()).arg(CONTENT_TYPE).arg(message.body.kind().mime());
        for (name, value) in message.properties.iter() {
            command.arg(name).arg(value);
        }
        command.arg("duly-id").arg(message.id.as_str());
        command.arg("duly-due").arg(message.due.as_millis());
        command.arg("duly-attempt").arg(delivery.attempt);
        if let Some(tag) = &message.tag {
            command.arg("duly-tag").arg(tag.as_str());
        }
        if let Some(key) = &message.key {
            command.arg("duly-key").arg(key.as_str());
        }
        command
    }

    /// Takes the markers away of what will not come again.
    pub(super) async fn forget(&self, mut connection: Connection, delivered: &[Delivery]) {
        let forget = |delivery: &Delivery| {
            if delivery.attempt == 1 {
                let mut command = redis::cmd("UNLINK");
                command.arg(marker(delivery));
                return command;
            }
            let mut command = redis::cmd("PEXPIRE");
            command.arg(marker(delivery)).arg(LINGER.as_millis() as u64).arg("LT");
            command
        };
        connection.ask(delivered.iter().map(forget).collect()).await;
    }
}

fn marker(delivery: &Delivery) -> String {
    slot::marker(delivery.message.topic.as_str(), delivery.message.id.as_str())
}

/// A right that is missed is one to a key, and not to a command.
fn is_of_keys(error: &RedisError) -> bool {
    error.code() == Some("NOPERM") && error.detail().is_some_and(|detail| detail.contains(OF_KEY))
}

fn is_unknown(answer: &Result<Value, RedisError>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}
