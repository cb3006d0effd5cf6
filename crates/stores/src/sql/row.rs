//! A message as a row of `delay_message`.

use std::time::Duration;

use bytes::Bytes;
use duly_core::{
    Attempt, Body, ErrorCode, Invalid, Key, Lane, LeaseLoss, MessageId, Outcome, Priority, Record, SinkName,
    State, StoredMessage, Tag, Timestamp, Topic, store::Insert,
};

use super::{
    connection::{Dialect, ServerRow},
    fault::Fault,
    text::{kind_of, read_history, read_properties, read_retry, reason_of},
};

/// Placeholder for a state without a word. No row has it: a test goes through all states.
const UNWRITTEN: &str = "UNWRITTEN";

/// The columns that are read, in the order of [`Row::read`].
pub(super) const COLUMNS: &str = "message_id, sink, topic, tag, properties, deliver_time_ms, message_key, content_kind, priority, \
     max_lateness_ms, retry, ready_time_ms, attempts, history, maybe_delivered, lost, end_time_ms, dead_reason, receipt, \
     content_hash, lane_no, queue_no, queue_at, version, token, lease_span_us, holder, claim_call, status, queue_rank, ";

/// Whether bodies come along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bodies {
    With,
    Without,
}

impl Bodies {
    /// The beginning of a query of rows.
    pub(super) fn select(self) -> String {
        format!("SELECT {} FROM delay_message ", self.columns())
    }

    /// What is read of a row.
    pub(super) fn columns(self) -> String {
        // What is not known by its hash is known by its body.
        let body = if self == Self::With { "body" } else { "CASE WHEN content_hash IS NULL THEN body END" };
        format!("{COLUMNS}{body}")
    }

    /// The beginning of a query of rows with the time when each was inserted, in milliseconds.
    pub(super) fn select_with_acceptance(self, dialect: Dialect) -> String {
        // Neither depends on the time zone of the session.
        let accepted = match dialect {
            Dialect::Mysql => "CAST(UNIX_TIMESTAMP(create_time) * 1000 AS SIGNED)",
            Dialect::Postgres => "CAST(EXTRACT(EPOCH FROM create_time) * 1000 AS BIGINT)",
        };
        self.select().replacen(" FROM ", &format!(", {accepted} FROM "), 1)
    }
}

/// The rank of a row in flight that is all a client claimed; of others it is 0. What is in flight has no other use for a rank.
pub(super) const ONLY_CLAIMED: i64 = 1;

/// Where rows are that do not wait.
pub(super) const IN_FLIGHT: i64 = -1;
pub(super) const ENDED: i64 = -2;
pub(super) const DEAD: i64 = -3;
/// Not even its id is one: it cannot be asked for, and is not counted.
pub(super) const NO_MESSAGE: i64 = -4;

/// The number of the queue in which messages of a lane wait in one shard.
pub(super) fn queue_no(lane_no: i64, shard: u16) -> i64 {
    lane_no * 256 + i64::from(shard)
}

/// The lane and the shard of [`queue_no`].
pub(super) fn lane_and_shard(queue: i64) -> (i64, u16) {
    (queue / 256, (queue % 256) as u16)
}

/// All of one row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) record: Record,
    pub(super) lost: LeaseLoss,
    pub(super) hash: i64,
    pub(super) lane_no: i64,
    /// While it is in flight: when the lease ends, in the store's time.
    pub(super) lease_end: u64,
    pub(super) version: i64,
    pub(super) token: u64,
    pub(super) span_us: i64,
    /// The process that works on it; `None`: a client with a receipt.
    pub(super) process: Option<i64>,
    /// While it is in flight: all that a client claimed, so that nothing else can be why it is lost.
    pub(super) is_only: bool,
    /// The piece of work that claimed it last.
    pub(super) claim_call: i64,
    /// Not looked at by Duly yet: somebody put it there by SQL.
    pub(super) is_raw: bool,
    /// Not in the table yet.
    pub(super) is_new: bool,
    /// It is new here, and something happened to it in another store.
    pub(super) has_past: bool,
}

/// A row that is no message, and why.
#[derive(Debug)]
pub(super) struct Bad {
    /// As it is in the row: it may be no id.
    pub(super) id: String,
    pub(super) why: Invalid,
    pub(super) queue_no: Option<i64>,
    pub(super) due_ms: i64,
    /// When it may be tried next, as it was counted.
    pub(super) ready: Timestamp,
    pub(super) lane_no: i64,
    /// The lane in which it is shown; none if its id is none, so that it cannot be shown.
    pub(super) lane: Option<Lane>,
}

impl Bad {
    /// Whether it was accepted and waits.
    pub(super) fn waits(&self) -> bool {
        self.queue_no.is_some_and(|queue| queue > 0)
    }
}

impl Row {
    /// A message that is accepted at `now`. Unless it has a past, the database writes down when.
    pub(super) fn new(insert: Insert, now: Timestamp, lane_no: i64) -> Self {
        let hash = insert.message.content_hash() as i64;
        let has_past = insert.past.is_some();
        let mut record = insert.into_record(now);
        record.accepted = record.accepted.filter(|_| has_past);
        Self {
            record,
            has_past,
            lost: LeaseLoss::None,
            hash,
            lane_no,
            lease_end: 0,
            version: 0,
            token: 0,
            span_us: 0,
            process: None,
            is_only: false,
            claim_call: 0,
            is_raw: false,
            is_new: true,
        }
    }

    /// Reads a row of [`Bodies::select`].
    pub(super) fn read(row: &ServerRow) -> Result<Result<Self, Bad>, Fault> {
        let queue_no = row.maybe_int(21)?;
        match Self::read_whole(row, queue_no)? {
            Ok(read) => Ok(Ok(read)),
            Err(why) => Ok(Err(Bad {
                id: row.text(0)?,
                why,
                queue_no,
                due_ms: row.int(5)?,
                ready: row.maybe_int(11)?.map_or_else(|| row.int(5), Ok).map(millis)?,
                lane_no: row.maybe_int(20)?.unwrap_or_default(),
                lane: stand_in(row)?.map(|message| message.lane()),
            })),
        }
    }

    /// Reads a row of [`Bodies::select_with_acceptance`].
    pub(super) fn read_with_acceptance(row: &ServerRow) -> Result<Result<Self, Bad>, Fault> {
        let accepted = row.maybe_int(31)?.map(millis);
        let read = Self::read(row)?;
        Ok(read.map(|mut read| {
            read.record.accepted = accepted;
            read
        }))
    }

    fn read_whole(row: &ServerRow, queue_no: Option<i64>) -> Result<Result<Self, Invalid>, Fault> {
        let (is_raw, is_dead) = (queue_no.is_none(), queue_no == Some(DEAD));
        let message = match read_message(row, is_raw)? {
            Ok(message) => message,
            Err(why) => match stand_in(row)?.filter(|_| is_dead) {
                Some(message) => message,
                None => return Ok(Err(why)),
            },
        };
        let state = match read_state(&row.text(28)?, queue_no) {
            Ok(state) => state,
            Err(why) => return Ok(Err(why)),
        };
        let mut record = Record::accepted(message, None);
        record.state = state;
        let lost = match read_life(row, &mut record)? {
            // Whatever stands in what is Duly's own, it has not happened.
            _ if is_raw => {
                record = Record::accepted(record.message, None);
                LeaseLoss::None
            }
            Ok(lost) => lost,
            // A dead letter is shown, whatever it is.
            Err(_) if is_dead => LeaseLoss::None,
            Err(why) => return Ok(Err(why)),
        };
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        let holder = row.maybe_int(26)?;
        Ok(Ok(Self {
            hash: row.maybe_int(19)?.unwrap_or_else(|| record.message.content_hash() as i64),
            lost,
            lane_no: row.maybe_int(20)?.unwrap_or_default(),
            lease_end: if state == State::InFlight { unsigned(row.int(22)?) } else { 0 },
            version: row.int(23)?,
            token: unsigned(row.int(24)?),
            span_us: row.maybe_int(25)?.unwrap_or_default(),
            process: holder.filter(|holder| *holder != 0),
            is_only: state == State::InFlight && row.maybe_int(29)? == Some(ONLY_CLAIMED),
            claim_call: row.maybe_int(27)?.unwrap_or_default(),
            is_raw,
            is_new: false,
            has_past: false,
            record,
        }))
    }

    pub(super) fn id(&self) -> &MessageId {
        &self.record.message.id
    }

    pub(super) fn max_lateness_ms(&self) -> Option<i64> {
        let span = self.record.message.max_lateness?;
        Some(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
    }

    /// The word that people read.
    pub(super) fn status(&self) -> &'static str {
        match self.record.state {
            State::Pending | State::InFlight => "PENDING",
            State::Delivered => "DELIVERED",
            State::Dead => "FAILED",
            State::Cancelled => "CANCELLED",
            _ => UNWRITTEN,
        }
    }

    /// The queue of the row, and the time and rank that order it there.
    pub(super) fn queue_position(&self, shard: u16) -> (i64, i64, i64) {
        let micros = |at: Timestamp| at.as_millis() as i64 * 1000;
        let Record { message, state, ready, ended, .. } = &self.record;
        match state {
            State::Pending => {
                (queue_no(self.lane_no, shard), micros(*ready), i64::from(9 - message.priority.get()))
            }
            State::InFlight => {
                (IN_FLIGHT, self.lease_end as i64, if self.is_only { ONLY_CLAIMED } else { 0 })
            }
            State::Dead => (DEAD, micros(message.due), 0),
            _ => (ENDED, ended.map_or(0, micros), 0),
        }
    }

    /// Adds an attempt to the history and the counts.
    pub(super) fn record_attempt(&mut self, attempt: Attempt) {
        let record = &mut self.record;
        record.attempts = record.attempts.saturating_add(u32::from(attempt.outcome.counts()));
        record.maybe_delivered |= attempt.outcome.maybe_delivered();
        Attempt::remember(&mut record.history, attempt);
    }
}

/// A time as it was written; what is out of range, at its end.
pub(super) fn millis(ms: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(ms).unwrap_or_default())
}

/// By the word that people read, and where the row is.
fn read_state(status: &str, queue_no: Option<i64>) -> Result<State, Invalid> {
    match (status, queue_no) {
        ("PENDING", Some(IN_FLIGHT)) => Ok(State::InFlight),
        ("PENDING", _) => Ok(State::Pending),
        (_, None) => {
            let detail = format!("a new row is PENDING, and this one says {status:?}");
            Err(Invalid::new(ErrorCode::BadStatus, "status", detail))
        }
        ("DELIVERED", _) => Ok(State::Delivered),
        ("FAILED", _) => Ok(State::Dead),
        ("CANCELLED", _) => Ok(State::Cancelled),
        _ => {
            let detail =
                format!("it is PENDING, DELIVERED, FAILED or CANCELLED, and this one says {status:?}");
            Err(Invalid::new(ErrorCode::BadStatus, "status", detail))
        }
    }
}

/// What became of the message so far.
fn read_life(row: &ServerRow, record: &mut Record) -> Result<Result<LeaseLoss, Invalid>, Fault> {
    let (history, reason) = (row.maybe_text(13)?, row.maybe_text(17)?);
    let read = || Ok((read_history(history.as_deref())?, reason.map(|word| reason_of(&word)).transpose()?));
    record.ready = row.maybe_int(11)?.map_or(record.message.due, millis);
    record.attempts = u32::try_from(row.int(12)?).unwrap_or(u32::MAX);
    record.maybe_delivered = row.int(14)? != 0;
    record.ended = row.maybe_int(16)?.map(millis);
    record.receipt = row.maybe_text(18)?;
    match read() {
        Ok(read) => (record.history, record.reason) = read,
        Err(why) => return Ok(Err(why)),
    }
    if let (State::Delivered, Some(at)) = (record.state, record.ended) {
        // Not written: it says nothing that the row does not say.
        Attempt::remember(&mut record.history, Attempt::new(at, Outcome::Delivered, ""));
    }
    Ok(Ok(match row.int(15)? {
        0 => LeaseLoss::None,
        1 => LeaseLoss::InBatch,
        _ => LeaseLoss::Alone,
    }))
}

/// What was accepted by Duly was checked then; what somebody else put there is checked now.
fn read_message(row: &ServerRow, is_raw: bool) -> Result<Result<StoredMessage, Invalid>, Fault> {
    let (sink, topic, tag, key) = (row.text(1)?, row.text(2)?, row.maybe_text(3)?, row.maybe_text(6)?);
    let (id, properties, retry) = (row.text(0)?, row.maybe_text(4)?, row.maybe_text(10)?);
    let (due, priority, lateness) = (row.int(5)?, row.int(8)?, row.maybe_int(9)?);
    let (kind, body) = (row.maybe_text(7)?, row.maybe_bytes(30)?.unwrap_or_default());
    let read = || {
        let mut message = StoredMessage::new(
            MessageId::parse(&id)?,
            SinkName::parse(&sink)?,
            Topic::parse(&topic)?,
            time_of(due)?,
        );
        message.tag = tag.as_deref().map(Tag::parse).transpose()?;
        message.key = key.as_deref().map(Key::parse).transpose()?;
        let out = || Invalid::new(ErrorCode::BadPriority, "priority", "a priority is 0 to 9");
        message.priority = Priority::new(u8::try_from(priority).map_err(|_| out())?)?;
        let span = |ms: i64| {
            u64::try_from(ms).map(Duration::from_millis).map_err(|_| negative("max_lateness_ms", ms))
        };
        message.max_lateness = lateness.map(span).transpose()?;
        message.properties = read_properties(properties.as_deref(), is_raw)?;
        message.retry = read_retry(retry.as_deref())?.map(Box::new);
        message.body = Body::from_parts(kind_of(kind.as_deref(), &body)?, Bytes::from(body));
        Ok(message)
    };
    Ok(read())
}

/// What is shown of a dead letter that is no message: as much of it as can be read.
fn stand_in(row: &ServerRow) -> Result<Option<StoredMessage>, Fault> {
    let (id, sink, topic) = (row.text(0)?, row.text(1)?, row.text(2)?);
    let part = || {
        let sink = SinkName::parse(&sink).or_else(|_| SinkName::parse("?")).ok()?;
        let topic = Topic::parse(&topic).or_else(|_| Topic::parse("?")).ok()?;
        Some(StoredMessage::new(MessageId::parse(&id).ok()?, sink, topic, Timestamp::default()))
    };
    let due = time_of(row.int(5)?).unwrap_or_default();
    Ok(part().map(|message| StoredMessage { due, ..message }))
}

fn negative(path: &str, ms: i64) -> Invalid {
    Invalid::new(ErrorCode::BadTime, path, format!("milliseconds are not negative, and these are {ms}"))
}

fn time_of(ms: i64) -> Result<Timestamp, Invalid> {
    let count = u64::try_from(ms).map_err(|_| negative("deliver_time_ms", ms))?;
    let time = Timestamp::from_millis(count);
    if time.as_millis() != count {
        let detail = format!("{ms} milliseconds after 1970 are more than there are until the year 9999");
        return Err(Invalid::new(ErrorCode::BadTime, "deliver_time_ms", detail));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_word_of_its_own_in_the_table() {
        let message = StoredMessage::new(
            MessageId::parse("a").unwrap(),
            SinkName::queue(),
            Topic::parse("order").unwrap(),
            Timestamp::from_millis(1),
        );
        let words = State::ALL.map(|state| {
            let mut row = Row::new(Insert::new(message.clone()), Timestamp::default(), 1);
            row.record.state = state;
            row.status()
        });
        assert_eq!(words, ["PENDING", "PENDING", "DELIVERED", "FAILED", "CANCELLED"]);
    }
}
