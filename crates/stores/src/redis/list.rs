//! Pages by due time and id.
//!
//! What is pending lies by lane and ready time, what is dead by due time, what ended by its end, what is in flight by
//! id. Each of these sources returns positions, a due time and an id, and how far it read; where the first of them
//! stopped, the page ends. Then the messages are read in order until the page is full.

use duly_core::{
    MessageId, Record, SinkName, State, Timestamp,
    store::{Page, Query, StoreError},
};
use futures_util::future::try_join_all;

use super::{
    RedisStore,
    fault::garbled,
    keys::{ended_positions, six, time},
    packed::state_number,
    query::{Bodies, STEP},
    scripts,
};

/// How many places a page may read in vain before it ends early and says where to go on.
const READ_MAX: usize = 5000;
/// Messages that are read first, as they may be large. The next steps follow from their bytes.
const STEP_FIRST: usize = 64;
/// Lanes that one script reads.
const LANES_MAX: usize = 50;

/// A due time, as it sorts, and an id.
type Position = Vec<u8>;

/// The positions that a source returned.
#[derive(Debug, Default)]
struct SourcePage {
    positions: Vec<Position>,
    /// If the source stopped early: no position up to here is missing.
    horizon: Option<Position>,
}

impl SourcePage {
    /// Both, as far as both looked.
    fn and(mut self, other: Self) -> Self {
        self.positions.extend(other.positions);
        self.horizon = [self.horizon, other.horizon].into_iter().flatten().min();
        self
    }
}

impl RedisStore {
    pub(super) async fn page(&self, query: &Query) -> Result<Page, StoreError> {
        let from = beginning(query);
        let limit = query.limit.clamp(1, READ_MAX);
        let sources = (0..self.keys.shards()).map(|shard| self.source(shard, query, &from, limit));
        let source_page =
            try_join_all(sources).await?.into_iter().fold(SourcePage::default(), SourcePage::and);
        let within = |position: &Position| {
            let due = time(position).unwrap_or_default();
            position > &from
                && source_page.horizon.as_ref().is_none_or(|horizon| position <= horizon)
                && query.due_to.is_none_or(|to| due < to)
                // What something else wrote there names no message.
                && read_position(position).is_ok()
        };
        let mut positions: Vec<_> =
            source_page.positions.iter().filter(|position| within(position)).collect();
        positions.sort_unstable();
        positions.dedup();
        let mut ids =
            positions.iter().map(|position| read_position(position)).collect::<Result<Vec<_>, _>>()?;
        let beyond = ids.get(READ_MAX).is_some();
        ids.truncate(READ_MAX);
        let page = self.fill(query, &ids).await?;
        if page.next.is_some() || query.limit == 0 {
            return Ok(page);
        }
        // Not full: the sources looked no further, or there were too many that do not match.
        let last_read =
            positions.get(ids.len().saturating_sub(1)).filter(|_| beyond).map(|position| position.to_vec());
        let next = last_read
            .or(source_page.horizon)
            .filter(|position| query.due_to.is_none_or(|to| time(position).is_some_and(|due| due < to)));
        Ok(Page::new(page.records, next.map(|position| cursor(&position)).transpose()?))
    }

    /// Reads messages in order until the page is full.
    async fn fill(&self, query: &Query, ids: &[(Timestamp, MessageId)]) -> Result<Page, StoreError> {
        let mut page = Page::default();
        let (mut rest, mut bytes) = (ids, 0);
        let mut step = STEP_FIRST.min(query.limit.max(16));
        while !rest.is_empty() {
            let (part, later) = rest.split_at(rest.len().min(step));
            rest = later;
            let matching = |record: &Record| record.state == query.state && query.matches(&record.message);
            // The entry of a retried message that was damaged may be left over, and its id in use again with another due time.
            let is_there =
                |due: Timestamp, record: &Record| query.state != State::Pending || due == record.message.due;
            let part_ids: Vec<_> = part.iter().map(|(_, id)| id.clone()).collect();
            // What cannot be read is listed once it is a dead letter.
            let records = self.readable_records(&part_ids, Bodies::Without).await?;
            let read: usize = records.iter().flatten().map(Record::listed_bytes).sum();
            step = step_after(part.len(), read).min(query.limit.max(16));
            let found = part.iter().zip(records).filter_map(|((due, _), record)| {
                record.filter(|record| matching(record) && is_there(*due, record))
            });
            for record in found {
                bytes += record.listed_bytes();
                let is_full = bytes > Page::BYTES_MAX && !page.records.is_empty();
                if page.records.len() == query.limit || is_full {
                    let last = page.records.last();
                    page.next = last.map(|last| (last.message.due, last.message.id.clone()));
                    return Ok(page);
                }
                page.records.push(record);
            }
        }
        Ok(page)
    }

    async fn source(
        &self,
        shard: u16,
        query: &Query,
        from: &Position,
        limit: usize,
    ) -> Result<SourcePage, StoreError> {
        match query.state {
            State::Pending => {
                let source_page = self.pending(shard, query, from, limit).await?;
                Ok(source_page
                    .and(self.sorted_positions(self.keys.one(shard, "retried"), query, from, limit).await?))
            }
            State::Dead => self.sorted_positions(self.keys.one(shard, "dead"), query, from, limit).await,
            State::InFlight => {
                let claims = self.read_all("HSCAN", self.keys.one(shard, "claim")).await?;
                // Where `prelude.lua` packs the due time.
                let position = |(id, claim): (Vec<u8>, Vec<u8>)| Some([claim.get(34..40)?, &id].concat());
                Ok(SourcePage { positions: claims.into_iter().filter_map(position).collect(), horizon: None })
            }
            _ => {
                let ended = self.read_all("ZSCAN", self.keys.one(shard, "ended")).await?;
                let in_state = |member: Vec<u8>| ended_positions(&member, state_number(query.state));
                Ok(SourcePage { positions: ended.into_keys().flat_map(in_state).collect(), horizon: None })
            }
        }
    }

    /// Places that lie sorted, behind `from`.
    async fn sorted_positions(
        &self,
        key: &str,
        query: &Query,
        from: &Position,
        limit: usize,
    ) -> Result<SourcePage, StoreError> {
        let from = [b"(", from.as_slice()].concat();
        let to = end(query).map_or_else(|| b"+".to_vec(), |to| [b"(", to.as_slice()].concat());
        let cmd = redis::cmd("ZRANGEBYLEX")
            .arg(key)
            .arg(from)
            .arg(to)
            .arg("LIMIT")
            .arg(0)
            .arg(limit + 1)
            .to_owned();
        let positions: Vec<Position> = self.ask(&cmd).await?;
        let horizon = positions.last().filter(|_| positions.len() > limit).cloned();
        Ok(SourcePage { positions, horizon })
    }

    /// Pending messages by lane and due time.
    async fn pending(
        &self,
        shard: u16,
        query: &Query,
        from: &Position,
        limit: usize,
    ) -> Result<SourcePage, StoreError> {
        let lanes = self.lanes_listed(shard, query).await?;
        let mut source_page = SourcePage::default();
        for part in lanes.chunks(LANES_MAX) {
            let mut cmd = self.read_call(&scripts::PENDING, shard);
            cmd.arg(limit + 1).arg(&from[..6]).arg(&from[6..]).arg(end(query).unwrap_or_default()).arg(part);
            let mut reply = self.run(&scripts::PENDING, &cmd).await?.into_iter();
            let horizon = reply.next().filter(|horizon| !horizon.is_empty());
            source_page = source_page.and(SourcePage { positions: reply.collect(), horizon });
        }
        Ok(source_page)
    }

    /// The lanes of one shard that may match the query.
    async fn lanes_listed(&self, shard: u16, query: &Query) -> Result<Vec<Vec<u8>>, StoreError> {
        let is_queue = query.sink.as_ref().map(SinkName::is_queue);
        if let (Some(true), Some(topic)) = (is_queue, &query.topic) {
            return Ok(vec![format!("q{topic}").into_bytes()]);
        }
        if let (Some(false), Some(sink)) = (is_queue, &query.sink) {
            return Ok(vec![format!("s{sink}").into_bytes()]);
        }
        let wanted = |name: &Vec<u8>| match (name.split_first(), &query.topic) {
            (Some((b'q', topic)), Some(wanted)) => topic == wanted.as_str().as_bytes(),
            (Some((b's', _)), _) => is_queue != Some(true),
            _ => true,
        };
        let lanes = self.read_all("ZSCAN", self.keys.one(shard, "soonest")).await?;
        Ok(lanes.into_keys().filter(wanted).collect())
    }
}

/// How many messages to read after `count` with `bytes`, so that they have about the bytes of a page.
fn step_after(count: usize, bytes: usize) -> usize {
    (Page::BYTES_MAX / (bytes / count.max(1)).max(1)).clamp(16, STEP)
}

/// The position after which the page begins.
fn beginning(query: &Query) -> Position {
    let after = query.after.as_ref().map(|(due, id)| [&six(*due), id.as_str().as_bytes()].concat());
    let due_from = six(query.due_from.unwrap_or_default()).to_vec();
    after.map_or(due_from.clone(), |after| after.max(due_from))
}

/// The due time before which all matches lie, if the query has one.
fn end(query: &Query) -> Option<Vec<u8>> {
    query.due_to.map(|to| six(to).to_vec())
}

fn read_position(position: &[u8]) -> Result<(Timestamp, MessageId), StoreError> {
    Ok((time(position).unwrap_or_default(), id_in(position)?))
}

fn id_in(position: &[u8]) -> Result<MessageId, StoreError> {
    let id = position.get(6..).and_then(|id| std::str::from_utf8(id).ok());
    id.and_then(|id| MessageId::parse(id).ok()).ok_or_else(|| garbled("a position"))
}

/// A place as a cursor. A horizon may be no id's place but lie before or behind all ids of a millisecond.
fn cursor(position: &[u8]) -> Result<(Timestamp, MessageId), StoreError> {
    let due = time(position).ok_or_else(|| garbled("a position"))?;
    let last_id = || MessageId::parse(&"z".repeat(MessageId::LEN_MAX)).map_err(|_| garbled("a position"));
    match position.get(6..) {
        None | Some([]) => Ok((due.saturating_sub(std::time::Duration::from_millis(1)), last_id()?)),
        Some([255, ..]) => Ok((due, last_id()?)),
        Some(_) => Ok((due, id_in(position)?)),
    }
}
