//! A consumer group of one stream: every command that it takes.

use std::time::Duration;

use redis::{RedisResult, Script, ScriptInvocation};
use redis_link::Link;

use crate::{
    DeadLetterPolicy, Priority, Retry, Trim, Unacknowledged, entry::Raw, keys::Keys, scripts,
    settings::StartFrom,
};

/// An entry as Redis tells it; one that was trimmed away has no fields.
pub(crate) type Told = (String, Option<Vec<Vec<u8>>>);

/// A group in one of its topic's streams, and this process's name in it.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) topic: String,
    pub(crate) priority: Priority,
    pub(crate) stream: String,
    pub(crate) group: String,
    pub(crate) consumer: String,
    tries: String,
    due: String,
    dead: String,
    keys: Keys,
}

/// An entry, and how often it failed and killed.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) raw: Raw,
    pub(crate) failures: u32,
    pub(crate) crashes: u32,
    /// How long until it is to be handled; none for a suspect.
    pub(crate) wait: Option<Duration>,
}

/// What was read: entries, and the ids of those that are no longer there.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) entries: Vec<Taken>,
    pub(crate) trimmed: Vec<String>,
}

/// What became of an entry that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is tried again.
    Again,
    /// It is a dead letter.
    Dead,
    /// Somebody else has it by now.
    Lost,
    /// Nobody has it any more.
    Gone,
    /// It was trimmed away.
    Trimmed,
}

impl Fate {
    fn of((word, attempts): (String, u32)) -> (Self, u32) {
        let fate = match word.as_str() {
            "again" => Self::Again,
            "dead" => Self::Dead,
            "lost" => Self::Lost,
            "trimmed" => Self::Trimmed,
            _ => Self::Gone,
        };
        (fate, attempts)
    }
}

/// Whose entries to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// What this consumer left when it was last here.
    Own,
    /// What anybody left.
    All,
    /// What anybody has, also what waits for its next try: for a consumer that begins to work in a group that keeps order.
    Every,
    /// What a consumer that works in such a group has without knowing of it; and what others left.
    Missed,
}

type Packed = (String, Vec<Vec<u8>>, u32, u32, i64);

impl Page {
    pub(crate) fn new(told: Vec<Told>) -> Self {
        let mut page = Self::default();
        for (id, fields) in told {
            match fields {
                Some(fields) => {
                    let (raw, wait) = (Raw::new(id, fields), Some(Duration::ZERO));
                    page.entries.push(Taken { raw, failures: 0, crashes: 0, wait });
                }
                None => page.trimmed.push(id),
            }
        }
        page
    }

    fn unpack(packed: Vec<Packed>, trimmed: Vec<String>) -> Self {
        let entry = |(id, fields, failures, crashes, wait): Packed| {
            let raw = Raw { attempt: failures + crashes + 1, ..Raw::new(id, fields) };
            let wait = u64::try_from(wait).ok().map(Duration::from_millis);
            Taken { raw, failures, crashes, wait }
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
            tries: keys.tries(group, priority),
            due: keys.due(group, priority),
            dead: keys.dead(),
            keys: keys.clone(),
        }
    }

    /// The same group in the stream of another priority.
    pub(crate) fn of_priority(&self, priority: Priority) -> Self {
        Self::new(&self.keys, &self.group, &self.consumer, priority)
    }

    fn call<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut call = script.key(&self.stream);
        call.key(&self.tries).key(&self.due).key(&self.dead).arg(&self.group);
        call
    }

    /// Makes the group, and the stream, if they are not there.
    pub(crate) async fn create(&self, link: &mut Link, from: StartFrom) -> RedisResult<()> {
        let from = match from {
            StartFrom::Oldest => "0",
            StartFrom::Now => "$",
        };
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&self.stream).arg(&self.group).arg(from).arg("MKSTREAM");
        match create.exec_async(link).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            // Without memory Redis refuses that also for a group that is there.
            Err(error) if error.code() == Some("OOM") && self.is_there(link).await => Ok(()),
            done => done,
        }
    }

    async fn is_there(&self, link: &mut Link) -> bool {
        let mut consumers = redis::cmd("XINFO");
        consumers.arg("CONSUMERS").arg(&self.stream).arg(&self.group);
        consumers.exec_async(link).await.is_ok()
    }

    /// New entries, without waiting.
    pub(crate) async fn read_now(&self, link: &mut Link, count: usize) -> RedisResult<Page> {
        let mut pages = read(&[self], link, count, None).await?;
        Ok(pages.pop().unwrap_or_default())
    }

    /// What is to be handled again by now; and how long until the next.
    pub(crate) async fn due(&self, link: &mut Link, count: usize) -> RedisResult<(Page, Option<Duration>)> {
        let mut call = self.call(&scripts::DUE);
        call.arg(&self.consumer).arg(count);
        let (entries, trimmed, wait): (Vec<Packed>, Vec<String>, i64) = call.invoke_async(link).await?;
        Ok((Page::unpack(entries, trimmed), u64::try_from(wait).ok().map(Duration::from_millis)))
    }

    /// Takes over what was left for so long, from the entry `from` on; and where to go on, if there is more.
    pub(crate) async fn take(
        &self,
        link: &mut Link,
        whose: Whose,
        idle: Duration,
        from: &str,
        count: usize,
    ) -> RedisResult<(Page, Option<String>)> {
        let whose = match whose {
            Whose::Own => "own",
            Whose::All => "all",
            Whose::Every => "every",
            Whose::Missed => "missed",
        };
        let mut call = self.call(&scripts::TAKE);
        call.arg(&self.consumer).arg(millis(idle)).arg(from).arg(count).arg(whose);
        let (entries, trimmed, next): (Vec<Packed>, Vec<String>, String) = call.invoke_async(link).await?;
        Ok((Page::unpack(entries, trimmed), Some(next).filter(|next| next != "0-0")))
    }

    /// Writes down that one which is not new is begun, a suspect alone; false if it is no longer this consumer's.
    pub(crate) async fn begin(
        &self,
        link: &mut Link,
        id: &str,
        is_suspect: bool,
        attempt: &str,
    ) -> RedisResult<bool> {
        let mut call = self.call(&scripts::BEGIN);
        call.arg(&self.consumer).arg(id).arg(u8::from(is_suspect)).arg(attempt).invoke_async(link).await
    }

    /// Where a group that keeps order stands.
    pub(crate) async fn place(&self, link: &mut Link) -> RedisResult<NextRead> {
        self.next_or_place(link, "where", "", 0).await
    }

    /// New entries of a group that keeps order, if it stands at `place`.
    pub(crate) async fn next(&self, link: &mut Link, place: &str, count: usize) -> RedisResult<NextRead> {
        // They pass through a script.
        const COUNT_MAX: usize = 64;
        self.next_or_place(link, "next", place, count.min(COUNT_MAX)).await
    }

    async fn next_or_place(
        &self,
        link: &mut Link,
        what: &str,
        place: &str,
        count: usize,
    ) -> RedisResult<NextRead> {
        let mut call = scripts::NEXT.key(&self.stream);
        call.key(self.keys.reader(&self.group)).arg(&self.group).arg(&self.consumer);
        call.arg(what).arg(place).arg(count);
        let (word, told, place): (String, Vec<Told>, String) = call.invoke_async(link).await?;
        Ok(match word.as_str() {
            "read" => NextRead::Read(Page::new(told), place),
            "moved" => NextRead::Moved,
            _ => NextRead::Lost,
        })
    }

    /// Whether this consumer is the one that works in a group that keeps order, from now on and for so long.
    pub(crate) async fn lead(&self, link: &mut Link, lease: Duration) -> RedisResult<bool> {
        let mut call = scripts::READER.key(self.keys.reader(&self.group));
        call.arg(&self.consumer).arg(millis(lease)).arg(1).invoke_async(link).await
    }

    /// Lets another one work in it.
    pub(crate) async fn let_go(&self, link: &mut Link) -> RedisResult<()> {
        let mut call = scripts::READER.key(self.keys.reader(&self.group));
        call.arg(&self.consumer).arg(0).arg(0).invoke_async(link).await
    }

    /// Trims a little.
    pub(crate) async fn trim(
        &self,
        link: &mut Link,
        trim: &Trim,
        marks: impl Iterator<Item = &Mark>,
    ) -> RedisResult<Trimmed> {
        const LOOK: usize = 500;
        const REMOVE: usize = 10_000;
        let text = |limit: Option<u64>| limit.map_or_else(String::new, |limit| limit.to_string());
        let unacknowledged = match trim.unacknowledged {
            Unacknowledged::Keep => "keep",
            Unacknowledged::Drop => "drop",
        };
        let mut call = scripts::TRIM.key(&self.stream);
        call.arg(text(trim.max_len)).arg(text(trim.max_age.map(millis))).arg(unacknowledged).arg(LOOK);
        call.arg(REMOVE).arg(&self.group);
        for Mark { id, added } in marks {
            call.arg(id).arg(added);
        }
        let told: (u64, u8, String, u64, String, String) = call.invoke_async(link).await?;
        let (_, more, held_up_by, over, id, added) = told;
        let mark = added.parse().ok().map(|added| Mark { id, added });
        Ok(Trimmed { more: more == 1, held_up_by, over, mark })
    }

    /// These are done. Answers how many were pending.
    pub(crate) async fn ack(&self, link: &mut Link, ids: &[String]) -> RedisResult<usize> {
        self.call(&scripts::ACK).arg(ids).invoke_async(link).await
    }

    /// A handler failed on it.
    pub(crate) async fn fail(
        &self,
        link: &mut Link,
        failed: Failed<'_>,
        (retry, dead): (&Retry, &DeadLetterPolicy),
    ) -> RedisResult<(Fate, u32)> {
        let (keep, most) = dead_words(dead);
        let mut call = self.call(&scripts::FAIL);
        call.arg(&self.consumer).arg(failed.id).arg(shorten(failed.why)).arg(millis(failed.wait));
        call.arg(retry.attempts).arg(keep).arg(most).arg(u8::from(failed.alone)).arg(failed.attempt);
        call.invoke_async(link).await.map(Fate::of)
    }

    /// Makes a dead letter of it, whoever has it if no consumer is named.
    pub(crate) async fn bury(
        &self,
        link: &mut Link,
        consumer: &str,
        (id, why, more): (&str, &str, u32),
        dead: &DeadLetterPolicy,
    ) -> RedisResult<(Fate, u32)> {
        let (keep, most) = dead_words(dead);
        let mut call = self.call(&scripts::BURY);
        call.arg(consumer).arg(id).arg(shorten(why)).arg(more).arg(keep).arg(most);
        call.invoke_async(link).await.map(Fate::of)
    }

    /// Anybody may handle these again, so long from now. Nothing is counted.
    pub(crate) async fn again(
        &self,
        link: &mut Link,
        consumer: &str,
        wait: Duration,
        ids: &[String],
    ) -> RedisResult<usize> {
        self.call(&scripts::AGAIN).arg(consumer).arg(millis(wait)).arg(ids).invoke_async(link).await
    }

    /// Says that this consumer still works on these. Answers those that are no longer its own.
    pub(crate) async fn beat(&self, link: &mut Link, ids: &[String]) -> RedisResult<Vec<String>> {
        self.call(&scripts::BEAT).arg(&self.consumer).arg(ids).invoke_async(link).await
    }

    /// Takes this consumer's name out of the group, unless it holds something.
    pub(crate) async fn leave(&self, link: &mut Link) -> RedisResult<()> {
        self.call(&scripts::LEAVE).arg(&self.consumer).invoke_async(link).await
    }

    /// Takes out of the group whoever is gone for so long and holds nothing.
    pub(crate) async fn remove_gone(&self, link: &mut Link, after: Duration) -> RedisResult<Vec<String>> {
        self.call(&scripts::CONSUMERS).arg(&self.consumer).arg(millis(after)).invoke_async(link).await
    }

    /// Length, lag, pending, age of the oldest pending, waiting, consumers, dead letters.
    pub(crate) async fn stats(&self, link: &mut Link) -> RedisResult<(u64, u64, u64, i64, u64, u64, u64)> {
        self.call(&scripts::STATS).invoke_async(link).await
    }
}

/// A failure, as it is written down.
pub(crate) struct Failed<'a> {
    pub(crate) id: &'a str,
    pub(crate) why: &'a str,
    pub(crate) wait: Duration,
    /// Whether it was handled alone.
    pub(crate) alone: bool,
    /// The attempt that failed: told twice, it is counted once.
    pub(crate) attempt: &'a str,
}

/// What a read of a group that keeps order was answered.
#[derive(Debug)]
pub(crate) enum NextRead {
    /// New entries, and where the group stands now.
    Read(Page, String),
    /// The group stands elsewhere: a read was executed whose answer this consumer does not have.
    Moved,
    /// Another consumer works in the group.
    Lost,
}

/// A place in a stream: an entry, and how many had been added up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) id: String,
    pub(crate) added: u64,
}

/// What trimming did.
#[derive(Debug)]
pub(crate) struct Trimmed {
    /// Whether there may be more to remove.
    pub(crate) more: bool,
    /// Which group needs what should go; empty if none does.
    pub(crate) held_up_by: String,
    /// How many entries are too many.
    pub(crate) over: u64,
    /// Where this group stands now.
    pub(crate) mark: Option<Mark>,
}

pub(crate) fn dead_words(dead: &DeadLetterPolicy) -> (&'static str, String) {
    let most = dead.max_len.map_or_else(String::new, |most| most.to_string());
    (if dead.keep { "keep" } else { "drop" }, most)
}

/// A reason is for people: the beginning says what it was.
pub(crate) fn shorten(why: &str) -> &str {
    const MOST: usize = 1_000;
    let end = why.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MOST).last();
    &why[..end.unwrap_or(0)]
}

/// Waits so long until one of these streams has an entry after its place. At most one is told, and it is nobody's yet.
pub(crate) async fn wait_for_any(
    places: &[(&str, &str)],
    link: &mut Link,
    wait: Duration,
) -> RedisResult<()> {
    let mut read = redis::cmd("XREAD");
    read.arg("COUNT").arg(1).arg("BLOCK").arg(millis(wait).max(1)).arg("STREAMS");
    for (stream, _) in places {
        read.arg(stream);
    }
    for (_, place) in places {
        read.arg(place);
    }
    read.query_async::<redis::Value>(link).await.map(drop)
}

/// New entries of several streams of one topic, a page for each; waits so long for the first of them.
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
    let told: Vec<(String, Vec<Told>)> = read.query_async(link).await?;
    let mut pages: Vec<Page> = lanes.iter().map(|_| Page::default()).collect();
    for (stream, told) in told {
        if let Some(at) = lanes.iter().position(|lane| lane.stream == stream) {
            pages[at] = Page::new(told);
        }
    }
    Ok(pages)
}
