//! A message as a row of `delay_message`.

use std::time::Duration;

use bytes::Bytes;
use duly_core::{
    Attempt, Backoff, Body, ContentKind, DeadReason, Invalid, Key, Lost, Message, MessageId, Outcome,
    Priority, Properties, Record, RetryOverride, SinkName, State, Tag, Timestamp, Topic,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{
    fault::{Fault, garbled},
    link::Answer,
};

/// The columns that are read, in the order of [`Row::read`].
const COLUMNS: &str = "message_id, sink, topic, tag, properties, deliver_time_ms, message_key, content_kind, priority, \
     max_lateness_ms, retry, ready_time_ms, attempts, history, maybe_delivered, lost, end_time_ms, dead_reason, receipt, \
     content_hash, lane_no, queue_no, queue_at, version, token, lease_span_us, holder, last_call, status, ";

/// Whether bodies come along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bodies {
    With,
    Without,
}

impl Bodies {
    /// The beginning of a look at rows.
    pub(super) fn select(self) -> String {
        let body = if self == Self::With { "body" } else { "NULL" };
        format!("SELECT {COLUMNS}{body} FROM delay_message ")
    }
}

/// Where rows are that do not wait.
pub(super) const IN_FLIGHT: i64 = -1;
pub(super) const ENDED: i64 = -2;
pub(super) const DEAD: i64 = -3;

/// The number of the queue in which messages of a lane wait in one shard.
pub(super) fn queue_no(lane_no: i64, shard: u16) -> i64 {
    lane_no * 256 + i64::from(shard)
}

/// All of one row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) record: Record,
    pub(super) lost: Lost,
    pub(super) hash: i64,
    pub(super) lane_no: i64,
    /// While it is in flight: when the lease ends, in the store's time.
    pub(super) lease_end: u64,
    pub(super) version: i64,
    pub(super) token: u64,
    pub(super) span_us: i64,
    /// The process that works on it; `None`: a client with a receipt.
    pub(super) process: Option<i64>,
    pub(super) last_call: i64,
    /// Not looked at by Duly yet: somebody put it there by SQL.
    pub(super) is_raw: bool,
    /// Not in the table yet.
    pub(super) is_new: bool,
}

/// A row that is no message, and why.
#[derive(Debug)]
pub(super) struct Bad {
    /// As it is in the row: it may be no id.
    pub(super) id: String,
    pub(super) why: Invalid,
    pub(super) queue_no: Option<i64>,
    pub(super) due_ms: i64,
}

impl Row {
    /// A message that was just accepted.
    pub(super) fn new(message: Message, lane_no: i64, call: i64) -> Self {
        let hash = message.content_hash() as i64;
        Self {
            record: Record::accepted(message),
            lost: Lost::No,
            hash,
            lane_no,
            lease_end: 0,
            version: 0,
            token: 0,
            span_us: 0,
            process: None,
            last_call: call,
            is_raw: false,
            is_new: true,
        }
    }

    /// Reads a row of [`Bodies::select`].
    pub(super) fn read(row: &Answer) -> Result<Result<Self, Bad>, Fault> {
        let queue_no = row.maybe_int(21)?;
        let bad = |why| Bad {
            id: row.text(0).unwrap_or_default(),
            why,
            queue_no,
            due_ms: row.int(5).unwrap_or_default(),
        };
        let message = match read_message(row, queue_no.is_none())? {
            Ok(message) => message,
            Err(why) => match stand_in(row)?.filter(|_| queue_no == Some(DEAD)) {
                Some(message) => message,
                None => return Ok(Err(bad(why))),
            },
        };
        let status = row.text(28)?;
        let state = match (status.as_str(), queue_no) {
            ("PENDING", Some(IN_FLIGHT)) => State::InFlight,
            ("PENDING", _) => State::Pending,
            ("DELIVERED", _) => State::Delivered,
            ("FAILED", _) => State::Dead,
            ("CANCELLED", _) => State::Cancelled,
            _ => {
                let detail = "a status is PENDING, DELIVERED, FAILED or CANCELLED";
                return Ok(Err(bad(Invalid::new("bad_status", "status", detail))));
            }
        };
        let due = message.due;
        let hash = row.maybe_int(19)?;
        let mut record = Record::accepted(message);
        record.state = state;
        record.ready = row.maybe_int(11)?.map_or(due, millis);
        record.attempts = u32::try_from(row.int(12)?).unwrap_or(u32::MAX);
        record.history = read_history(row.maybe_text(13)?.as_deref())?;
        record.maybe_delivered = row.int(14)? != 0;
        record.ended = row.maybe_int(16)?.map(millis);
        record.reason = row.maybe_text(17)?.map(|word| reason_of(&word)).transpose()?;
        record.receipt = row.maybe_text(18)?;
        if let (State::Delivered, Some(at)) = (state, record.ended) {
            // Not written: it says nothing that the row does not say.
            push(&mut record.history, Attempt::new(at, Outcome::Delivered, ""));
        }
        let holder = row.maybe_int(26)?;
        Ok(Ok(Self {
            hash: hash.unwrap_or_else(|| record.message.content_hash() as i64),
            lost: match row.int(15)? {
                0 => Lost::No,
                1 => Lost::InCompany,
                _ => Lost::Alone,
            },
            lane_no: row.maybe_int(20)?.unwrap_or_default(),
            lease_end: if state == State::InFlight { row.int(22)? as u64 } else { 0 },
            version: row.int(23)?,
            token: row.int(24)? as u64,
            span_us: row.maybe_int(25)?.unwrap_or_default(),
            process: holder.filter(|holder| *holder != 0),
            last_call: row.maybe_int(27)?.unwrap_or_default(),
            is_raw: queue_no.is_none(),
            is_new: false,
            record,
        }))
    }

    pub(super) fn id(&self) -> &MessageId {
        &self.record.message.id
    }

    /// The word that people read.
    pub(super) fn status(&self) -> &'static str {
        match self.record.state {
            State::Pending | State::InFlight => "PENDING",
            State::Delivered => "DELIVERED",
            State::Dead => "FAILED",
            State::Cancelled => "CANCELLED",
        }
    }

    /// Where it is, and by which time and rank it is in turn there.
    pub(super) fn place(&self, shard: u16) -> (i64, i64, i64) {
        let micros = |at: Timestamp| at.as_millis() as i64 * 1000;
        let Record { message, state, ready, ended, .. } = &self.record;
        match state {
            State::Pending => {
                (queue_no(self.lane_no, shard), micros(*ready), i64::from(9 - message.priority.get()))
            }
            State::InFlight => (IN_FLIGHT, self.lease_end as i64, 0),
            State::Delivered | State::Cancelled => (ENDED, ended.map_or(0, micros), 0),
            State::Dead => (DEAD, micros(message.due), 0),
        }
    }

    /// Takes note of a try.
    pub(super) fn note(&mut self, attempt: Attempt) {
        let record = &mut self.record;
        record.attempts = record.attempts.saturating_add(u32::from(attempt.outcome.counts()));
        record.maybe_delivered |= attempt.outcome.maybe_delivered();
        push(&mut record.history, attempt);
    }

    /// The history as it is written.
    pub(super) fn history(&self) -> Option<String> {
        if self.record.history.is_empty() {
            return None;
        }
        let tries = self.record.history.iter().map(Try::from).collect::<Vec<_>>();
        serde_json::to_string(&tries).ok()
    }
}

fn push(history: &mut Vec<Attempt>, attempt: Attempt) {
    history.push(attempt);
    let over = history.len().saturating_sub(Attempt::KEPT_MAX);
    history.drain(..over);
}

fn millis(ms: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(ms).unwrap_or_default())
}

/// What was accepted by Duly was checked then; what somebody else put there is checked now.
fn read_message(row: &Answer, is_raw: bool) -> Result<Result<Message, Invalid>, Fault> {
    let (sink, topic, tag, key) = (row.text(1)?, row.text(2)?, row.maybe_text(3)?, row.maybe_text(6)?);
    let (id, properties, retry) = (row.text(0)?, row.maybe_text(4)?, row.maybe_text(10)?);
    let (due, priority, lateness) = (row.int(5)?, row.int(8)?, row.maybe_int(9)?);
    let (kind, body) = (row.maybe_text(7)?, row.maybe_bytes(29)?.unwrap_or_default());
    let read = || {
        let mut message = Message::new(
            MessageId::parse(&id)?,
            SinkName::parse(&sink)?,
            Topic::parse(&topic)?,
            time_of(due)?,
        );
        message.tag = tag.as_deref().map(Tag::parse).transpose()?;
        message.key = key.as_deref().map(Key::parse).transpose()?;
        let out = || Invalid::new("bad_priority", "priority", "a priority is 0 to 9");
        message.priority = Priority::new(u8::try_from(priority).map_err(|_| out())?)?;
        let span =
            |ms: i64| u64::try_from(ms).map(Duration::from_millis).map_err(|_| negative("max_lateness_ms"));
        message.max_lateness = lateness.map(span).transpose()?;
        message.properties = read_properties(properties.as_deref(), is_raw)?;
        message.retry = read_retry(retry.as_deref())?.map(Box::new);
        message.body = Body::from_parts(kind_of(kind.as_deref(), &body)?, Bytes::from(body));
        Ok(message)
    };
    Ok(read())
}

/// What is shown of a dead letter that is no message: as much of it as can be read.
fn stand_in(row: &Answer) -> Result<Option<Message>, Fault> {
    let (id, sink, topic) = (row.text(0)?, row.text(1)?, row.text(2)?);
    let part = || {
        let sink = SinkName::parse(&sink).or_else(|_| SinkName::parse("?")).ok()?;
        let topic = Topic::parse(&topic).or_else(|_| Topic::parse("?")).ok()?;
        Some(Message::new(MessageId::parse(&id).ok()?, sink, topic, Timestamp::default()))
    };
    let due = time_of(row.int(5)?).unwrap_or_default();
    Ok(part().map(|message| Message { due, ..message }))
}

fn negative(path: &str) -> Invalid {
    Invalid::new("bad_time", path, "milliseconds are not negative")
}

fn time_of(ms: i64) -> Result<Timestamp, Invalid> {
    let ms = u64::try_from(ms).map_err(|_| negative("deliver_time_ms"))?;
    let time = Timestamp::from_millis(ms);
    if time.as_millis() != ms {
        let detail = "milliseconds since 1970, and no later than the year 9999";
        return Err(Invalid::new("bad_time", "deliver_time_ms", detail));
    }
    Ok(time)
}

fn kind_of(word: Option<&str>, body: &[u8]) -> Result<ContentKind, Invalid> {
    match word {
        Some("text") => Ok(ContentKind::Text),
        Some("json") => Ok(ContentKind::Json),
        Some("bytes") => Ok(ContentKind::Bytes),
        None if std::str::from_utf8(body).is_ok() => Ok(ContentKind::Text),
        None => Ok(ContentKind::Bytes),
        Some(_) => Err(Invalid::new("bad_kind", "content_kind", "it is text, json or bytes")),
    }
}

/// The word for a kind of body.
pub(super) fn kind_word(kind: ContentKind) -> &'static str {
    match kind {
        ContentKind::Text => "text",
        ContentKind::Json => "json",
        ContentKind::Bytes => "bytes",
    }
}

fn read_properties(text: Option<&str>, is_raw: bool) -> Result<Properties, Invalid> {
    let mut properties = Properties::default();
    let Some(text) = text else { return Ok(properties) };
    let fault = |detail: String| Invalid::new("bad_property", "properties", detail);
    let map: Map<String, Json> =
        serde_json::from_str(text).map_err(|error| fault(format!("not a JSON object: {error}")))?;
    for (name, value) in map {
        let Json::String(value) = value else {
            return Err(fault(format!("the value of {name:?} is not a string")));
        };
        if is_raw {
            properties.set(&name, &value)?;
        } else {
            properties.put(&name, &value);
        }
    }
    Ok(properties)
}

/// Properties as they are written.
pub(super) fn properties_text(properties: &Properties) -> Option<String> {
    if properties.is_empty() {
        return None;
    }
    let map: Map<String, Json> =
        properties.iter().map(|(name, value)| (name.to_owned(), Json::String(value.to_owned()))).collect();
    serde_json::to_string(&map).ok()
}

/// What a message says of its own retries, as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Retry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backoff: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_ms: Option<u64>,
}

fn read_retry(text: Option<&str>) -> Result<Option<RetryOverride>, Invalid> {
    let Some(text) = text else { return Ok(None) };
    let fault = |detail: String| Invalid::new("bad_retry", "retry", detail);
    let retry: Retry = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
    let backoff = match retry.backoff.as_deref() {
        None => None,
        Some("fixed") => Some(Backoff::Fixed),
        Some("linear") => Some(Backoff::Linear),
        Some("exponential") => Some(Backoff::Exponential),
        Some(_) => return Err(fault("a backoff is fixed, linear or exponential".into())),
    };
    Ok(Some(RetryOverride {
        attempts: retry.attempts,
        backoff,
        min: retry.min_ms.map(Duration::from_millis),
        max: retry.max_ms.map(Duration::from_millis),
    }))
}

/// What a message says of its own retries, as text.
pub(super) fn retry_text(retry: &RetryOverride) -> Option<String> {
    let backoff = retry.backoff.map(|backoff| match backoff {
        Backoff::Fixed => "fixed",
        Backoff::Linear => "linear",
        Backoff::Exponential => "exponential",
    });
    let ms = |span: Option<Duration>| span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    let retry = Retry {
        attempts: retry.attempts,
        backoff: backoff.map(str::to_owned),
        min_ms: ms(retry.min),
        max_ms: ms(retry.max),
    };
    serde_json::to_string(&retry).ok()
}

/// A try, as it is written.
#[derive(Serialize, Deserialize)]
struct Try {
    at_ms: u64,
    outcome: String,
    #[serde(default)]
    detail: String,
}

impl From<&Attempt> for Try {
    fn from(attempt: &Attempt) -> Self {
        Self {
            at_ms: attempt.at.as_millis(),
            outcome: attempt.outcome.as_str().to_owned(),
            detail: attempt.detail.clone(),
        }
    }
}

fn read_history(text: Option<&str>) -> Result<Vec<Attempt>, Fault> {
    use Outcome::{Again, Delivered, Failed, Lost, Misconfigured, Refused, Throttled, Unknown, Unreachable};
    let Some(text) = text else { return Ok(Vec::new()) };
    let tries: Vec<Try> = serde_json::from_str(text).map_err(|_| garbled("a history"))?;
    let read = |tried: Try| {
        let known = [Delivered, Unreachable, Throttled, Unknown, Refused, Misconfigured, Again, Failed, Lost];
        let outcome = known.into_iter().find(|outcome| outcome.as_str() == tried.outcome);
        let outcome = outcome.ok_or_else(|| garbled("a history"))?;
        Ok(Attempt { at: Timestamp::from_millis(tried.at_ms), outcome, detail: tried.detail })
    };
    tries.into_iter().map(read).collect()
}

fn reason_of(word: &str) -> Result<DeadReason, Fault> {
    [DeadReason::Exhausted, DeadReason::Refused, DeadReason::Expired, DeadReason::Invalid]
        .into_iter()
        .find(|reason| reason.as_str() == word)
        .ok_or_else(|| Fault::garbled("a reason"))
}
