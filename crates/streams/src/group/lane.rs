//! A consumer group of one stream: every command it uses.

use std::time::Duration;

use redis::{RedisResult, Script, ScriptInvocation};
use redis_link::Link;

use crate::{
    DeadLetterPolicy, Priority, Retry, Trim, Unacknowledged, entry::Raw, keys::Keys, scripts,
    settings::StartFrom,
};

/// An entry in a reply of Redis; one that was trimmed has no fields.
pub(crate) type StreamReply = (String, Option<Vec<Vec<u8>>>);

/// A consumer group in one stream of its topic, and the name of this process in it.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) topic: String,
    pub(crate) priority: Priority,
    pub(crate) stream: String,
    pub(crate) group: String,
    pub(crate) consumer: String,
    counts: String,
    due: String,
    dead: String,
    keys: Keys,
}

/// An entry assigned to this consumer, with its failed attempts and the crashes of processes that handled it alone.
#[derive(Debug, Clone)]
pub(crate) struct ClaimedEntry {
    pub(crate) raw: Raw,
    pub(crate) failures: u32,
    pub(crate) crashes: u32,
    /// Time until it may be handled; `None` for a suspect.
    pub(crate) wait: Option<Duration>,
}

/// Entries, and the ids of those that were trimmed.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) entries: Vec<ClaimedEntry>,
    pub(crate) trimmed: Vec<String>,
}

/// The consequence of a failed attempt for its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureOutcome {
    /// It is retried.
    Retry,
    /// It is a dead letter.
    Dead,
    /// Another consumer has claimed it.
    Lost,
    /// It is no longer pending: somebody acknowledged it.
    NotPending,
    /// It was trimmed.
    Trimmed,
}

impl FailureOutcome {
    fn of((word, attempts): (String, u32)) -> (Self, u32) {
        let outcome = match word.as_str() {
            "retry" => Self::Retry,
            "dead" => Self::Dead,
            "lost" => Self::Lost,
            "trimmed" => Self::Trimmed,
            _ => Self::NotPending,
        };
        (outcome, attempts)
    }
}

/// Which pending entries to reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReclaimScope {
    /// Entries that this consumer had pending when it last ran.
    Own,
    /// Idle entries of any consumer.
    Idle,
    /// All pending entries, also those that wait for a retry: for a new leader of an ordered group.
    Pending,
    /// Entries that the leader of an ordered group was assigned without knowing it, and idle entries of others.
    Missed,
}

type PackedEntry = (String, Vec<Vec<u8>>, u32, u32, i64);

impl Page {
    pub(crate) fn new(reply: Vec<StreamReply>) -> Self {
        let mut page = Self::default();
        for (id, fields) in reply {
            match fields {
                Some(fields) => {
                    let (raw, wait) = (Raw::new(id, fields), Some(Duration::ZERO));
                    page.entries.push(ClaimedEntry { raw, failures: 0, crashes: 0, wait });
                }
                None => page.trimmed.push(id),
            }
        }
        page
    }

    fn unpack(packed: Vec<PackedEntry>, trimmed: Vec<String>) -> Self {
        let entry = |(id, fields, failures, crashes, wait): PackedEntry| {
            let raw = Raw { attempt: failures + crashes + 1, ..Raw::new(id, fields) };
            let wait = u64::try_from(wait).ok().map(Duration::from_millis);
            ClaimedEntry { raw, failures, crashes, wait }
        };
        Self { entries: packed.into_iter().map(entry).collect(), trimmed }
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Lane {
    pub(crate) fn new(keys: &Keys, group: &str, consumer: &str, priority: Priority) -> Self {
        Self {
            topic: keys.topic().to_owned(),
            priority,
            stream: keys.stream(priority),
            group: group.to_owned(),
            consumer: consumer.to_owned(),
            counts: keys.counts(group, priority),
            due: keys.due(group, priority),
            dead: keys.dead(),
            keys: keys.clone(),
        }
    }

    /// The same group in the stream of another priority.
    pub(crate) fn with_priority(&self, priority: Priority) -> Self {
        Self::new(&self.keys, &self.group, &self.consumer, priority)
    }

    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut call = script.key(&self.stream);
        call.key(&self.counts).key(&self.due).key(&self.dead).arg(&self.group);
        call
    }

    /// Creates the group, and the stream if it is missing.
    pub(crate) async fn create(&self, link: &mut Link, from: StartFrom) -> RedisResult<()> {
        let from = match from {
            StartFrom::Oldest => "0",
            StartFrom::Now => "$",
        };
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&self.stream).arg(&self.group).arg(from).arg("MKSTREAM");
        match create.exec_async(link).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            // Out of memory, Redis refuses the command although the group exists.
            Err(error) if error.code() == Some("OOM") && self.group_exists(link).await => Ok(()),
            done => done,
        }
    }

    async fn group_exists(&self, link: &mut Link) -> bool {
        let mut consumers = redis::cmd("XINFO");
        consumers.arg("CONSUMERS").arg(&self.stream).arg(&self.group);
        consumers.exec_async(link).await.is_ok()
    }

    /// Reads new entries without blocking.
    pub(crate) async fn read_now(&self, link: &mut Link, count: usize) -> RedisResult<Page> {
        let mut pages = read(&[self], link, count, None).await?;
        Ok(pages.pop().unwrap_or_default())
    }

    /// Reads entries whose retry is due. Returns the time until the next one, too.
    pub(crate) async fn due(&self, link: &mut Link, count: usize) -> RedisResult<(Page, Option<Duration>)> {
        let mut call = self.call(&scripts::DUE);
        call.arg(&self.consumer).arg(count);
        let (entries, trimmed, wait): (Vec<PackedEntry>, Vec<String>, i64) = call.invoke_async(link).await?;
        Ok((Page::unpack(entries, trimmed), u64::try_from(wait).ok().map(Duration::from_millis)))
    }

    /// Reclaims entries that are idle for this long, beginning at the entry `from`. Returns where to continue, if there
    /// are more.
    pub(crate) async fn reclaim(
        &self,
        link: &mut Link,
        whose: ReclaimScope,
        idle: Duration,
        from: &str,
        count: usize,
    ) -> RedisResult<(Page, Option<String>)> {
        let whose = match whose {
            ReclaimScope::Own => "own",
            ReclaimScope::Idle => "idle",
            ReclaimScope::Pending => "pending",
            ReclaimScope::Missed => "missed",
        };
        let mut call = self.call(&scripts::RECLAIM);
        call.arg(&self.consumer).arg(millis(idle)).arg(from).arg(count).arg(whose);
        let (entries, trimmed, next): (Vec<PackedEntry>, Vec<String>, String) =
            call.invoke_async(link).await?;
        Ok((Page::unpack(entries, trimmed), Some(next).filter(|next| next != "0-0")))
    }

    /// Loads parked entries, in the order of `ids`. Entries of other consumers are left out.
    pub(crate) async fn load(&self, link: &mut Link, ids: &[String]) -> RedisResult<Page> {
        let mut call = self.call(&scripts::LOAD);
        call.arg(&self.consumer).arg(ids);
        let (entries, trimmed): (Vec<PackedEntry>, Vec<String>) = call.invoke_async(link).await?;
        Ok(Page::unpack(entries, trimmed))
    }

    /// Records that an attempt of an entry that is not new begins. Returns false if the entry belongs to another
    /// consumer now.
    pub(crate) async fn begin_attempt(
        &self,
        link: &mut Link,
        id: &str,
        is_suspect: bool,
        attempt: &str,
    ) -> RedisResult<bool> {
        let mut call = self.call(&scripts::BEGIN_ATTEMPT);
        call.arg(&self.consumer).arg(id).arg(u8::from(is_suspect)).arg(attempt).invoke_async(link).await
    }

    /// The position of an ordered group.
    pub(crate) async fn group_position(&self, link: &mut Link) -> RedisResult<NextRead> {
        self.read_or_locate(link, "position", "", 0).await
    }

    /// Reads new entries of an ordered group, if it is at `position`.
    pub(crate) async fn read_next(
        &self,
        link: &mut Link,
        position: &str,
        count: usize,
    ) -> RedisResult<NextRead> {
        // Bounded because a script returns them.
        const COUNT_MAX: usize = 64;
        self.read_or_locate(link, "next", position, count.min(COUNT_MAX)).await
    }

    async fn read_or_locate(
        &self,
        link: &mut Link,
        what: &str,
        position: &str,
        count: usize,
    ) -> RedisResult<NextRead> {
        let mut call = scripts::READ_ORDERED.key(&self.stream);
        call.key(self.keys.leader(&self.group)).arg(&self.group).arg(&self.consumer);
        call.arg(what).arg(position).arg(count);
        let (word, reply, position): (String, Vec<StreamReply>, String) = call.invoke_async(link).await?;
        Ok(match word.as_str() {
            "read" => NextRead::Read(Page::new(reply), position),
            "moved" => NextRead::Moved,
            _ => NextRead::Lost,
        })
    }

    /// Takes or renews the leadership of an ordered group. Returns whether this consumer leads it for the time of the
    /// lease.
    pub(crate) async fn acquire_leadership(&self, link: &mut Link, lease: Duration) -> RedisResult<bool> {
        let mut call = scripts::LEADER.key(self.keys.leader(&self.group));
        call.arg(&self.consumer).arg(millis(lease)).arg(1).invoke_async(link).await
    }

    /// Gives the leadership up.
    pub(crate) async fn release_leadership(&self, link: &mut Link) -> RedisResult<()> {
        let mut call = scripts::LEADER.key(self.keys.leader(&self.group));
        call.arg(&self.consumer).arg(0).arg(0).invoke_async(link).await
    }

    /// Trims a bounded number of entries.
    pub(crate) async fn trim(
        &self,
        link: &mut Link,
        trim: &Trim,
        watermarks: impl Iterator<Item = &Watermark>,
    ) -> RedisResult<Trimmed> {
        const SCAN_MAX: usize = 500;
        const REMOVE_MAX: usize = 10_000;
        let text = |limit: Option<u64>| limit.map_or_else(String::new, |limit| limit.to_string());
        let unacknowledged = match trim.unacknowledged {
            Unacknowledged::Keep => "keep",
            Unacknowledged::Drop => "drop",
        };
        let mut call = scripts::TRIM.key(&self.stream);
        call.arg(text(trim.max_len)).arg(text(trim.max_age.map(millis))).arg(unacknowledged).arg(SCAN_MAX);
        call.arg(REMOVE_MAX).arg(&self.group);
        for Watermark { id, added } in watermarks {
            call.arg(id).arg(added);
        }
        let reply: (u64, u8, String, u64, String, String) = call.invoke_async(link).await?;
        let (_, more, blocked_by, over, id, added) = reply;
        let watermark = added.parse().ok().map(|added| Watermark { id, added });
        Ok(Trimmed { more: more == 1, blocked_by, over, watermark })
    }

    /// Acknowledges entries. Returns how many were pending.
    pub(crate) async fn ack(&self, link: &mut Link, ids: &[String]) -> RedisResult<usize> {
        self.call(&scripts::ACK).arg(ids).invoke_async(link).await
    }

    /// Records a failed attempt.
    pub(crate) async fn fail(
        &self,
        link: &mut Link,
        failed: FailedAttempt<'_>,
        (retry, dead): (&Retry, &DeadLetterPolicy),
    ) -> RedisResult<(FailureOutcome, u32)> {
        let (keep, max_len) = dead_letter_args(dead);
        let mut call = self.call(&scripts::FAIL);
        call.arg(&self.consumer).arg(failed.id).arg(truncate_reason(failed.why)).arg(millis(failed.wait));
        call.arg(retry.attempts).arg(keep).arg(max_len).arg(u8::from(failed.alone)).arg(failed.attempt);
        call.invoke_async(link).await.map(FailureOutcome::of)
    }

    /// Makes a dead letter of an entry. An empty `consumer` means whoever has it.
    pub(crate) async fn move_to_dlq(
        &self,
        link: &mut Link,
        consumer: &str,
        (id, why, more): (&str, &str, u32),
        dead: &DeadLetterPolicy,
    ) -> RedisResult<(FailureOutcome, u32)> {
        let (keep, max_len) = dead_letter_args(dead);
        let mut call = self.call(&scripts::DEAD_LETTER);
        call.arg(consumer).arg(id).arg(truncate_reason(why)).arg(more).arg(keep).arg(max_len);
        call.invoke_async(link).await.map(FailureOutcome::of)
    }

    /// Makes entries available to every consumer after `wait`. No attempt counts.
    pub(crate) async fn requeue(
        &self,
        link: &mut Link,
        consumer: &str,
        wait: Duration,
        ids: &[String],
    ) -> RedisResult<usize> {
        self.call(&scripts::REQUEUE).arg(consumer).arg(millis(wait)).arg(ids).invoke_async(link).await
    }

    /// Shows that this consumer still handles these entries. Returns those that belong to others now.
    pub(crate) async fn heartbeat(&self, link: &mut Link, ids: &[String]) -> RedisResult<Vec<String>> {
        self.call(&scripts::HEARTBEAT).arg(&self.consumer).arg(ids).invoke_async(link).await
    }

    /// Removes this consumer from the group, unless it has pending entries.
    pub(crate) async fn leave(&self, link: &mut Link) -> RedisResult<()> {
        self.call(&scripts::LEAVE).arg(&self.consumer).invoke_async(link).await
    }

    /// Removes consumers that are idle for this long and have no pending entries. Returns their names.
    pub(crate) async fn remove_idle_consumers(
        &self,
        link: &mut Link,
        after: Duration,
    ) -> RedisResult<Vec<String>> {
        self.call(&scripts::REMOVE_IDLE_CONSUMERS)
            .arg(&self.consumer)
            .arg(millis(after))
            .invoke_async(link)
            .await
    }

    /// Length, lag, pending, age of the oldest pending, waiting, consumers, dead letters.
    pub(crate) async fn stats(&self, link: &mut Link) -> RedisResult<(u64, u64, u64, i64, u64, u64, u64)> {
        self.call(&scripts::STATS).invoke_async(link).await
    }
}

/// A failed attempt as it is recorded.
pub(crate) struct FailedAttempt<'a> {
    pub(crate) id: &'a str,
    pub(crate) why: &'a str,
    pub(crate) wait: Duration,
    /// Whether it was handled as a suspect.
    pub(crate) alone: bool,
    /// The id of the attempt: reported twice, it counts once.
    pub(crate) attempt: &'a str,
}

/// The reply to a read of an ordered group.
#[derive(Debug)]
pub(crate) enum NextRead {
    /// New entries, and the new position of the group.
    Read(Page, String),
    /// The group is at another position: a read was executed whose reply this consumer did not get.
    Moved,
    /// Another consumer leads the group.
    Lost,
}

/// A position in a stream: an entry, and how many entries had been added up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watermark {
    pub(crate) id: String,
    pub(crate) added: u64,
}

/// The result of a trim.
#[derive(Debug)]
pub(crate) struct Trimmed {
    /// Whether there may be more entries to remove.
    pub(crate) more: bool,
    /// The group that still needs entries past the limit; empty if none does.
    pub(crate) blocked_by: String,
    /// Entries past the limit.
    pub(crate) over: u64,
    /// The position of this group.
    pub(crate) watermark: Option<Watermark>,
}

pub(crate) fn dead_letter_args(dead: &DeadLetterPolicy) -> (&'static str, String) {
    let max_len = dead.max_len.map_or_else(String::new, |max_len| max_len.to_string());
    (if dead.keep { "keep" } else { "drop" }, max_len)
}

/// Cuts a reason at a size that people still read.
pub(crate) fn truncate_reason(why: &str) -> &str {
    const BYTES_MAX: usize = 1_000;
    let end = why.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= BYTES_MAX).last();
    &why[..end.unwrap_or(0)]
}

/// Blocks until one of the streams has an entry after its position, at most this long. The entry is not assigned to
/// anybody.
pub(crate) async fn wait_for_entries(
    positions: &[(&str, &str)],
    link: &mut Link,
    wait: Duration,
) -> RedisResult<()> {
    let mut read = redis::cmd("XREAD");
    read.arg("COUNT").arg(1).arg("BLOCK").arg(millis(wait).max(1)).arg("STREAMS");
    for (stream, _) in positions {
        read.arg(stream);
    }
    for (_, position) in positions {
        read.arg(position);
    }
    read.query_async::<redis::Value>(link).await.map(drop)
}

/// Reads new entries of several streams of one topic, a page for each, blocking at most `wait` for the first one.
pub(crate) async fn read(
    lanes: &[&Lane],
    link: &mut Link,
    count: usize,
    wait: Option<Duration>,
) -> RedisResult<Vec<Page>> {
    let Some(first) = lanes.first() else { return Ok(Vec::new()) };
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP").arg(&first.group).arg(&first.consumer).arg("COUNT").arg(count);
    if let Some(wait) = wait {
        read.arg("BLOCK").arg(millis(wait).max(1));
    }
    read.arg("STREAMS");
    for lane in lanes {
        read.arg(&lane.stream);
    }
    for _ in lanes {
        read.arg(">");
    }
    let reply: Vec<(String, Vec<StreamReply>)> = read.query_async(link).await?;
    let mut pages: Vec<Page> = lanes.iter().map(|_| Page::default()).collect();
    for (stream, reply) in reply {
        if let Some(at) = lanes.iter().position(|lane| lane.stream == stream) {
            pages[at] = Page::new(reply);
        }
    }
    Ok(pages)
}
