//! A consumer group of one stream: every command that it takes.

use std::time::Duration;

use redis::{Cmd, RedisResult, Script};
use redis_link::Link;

use crate::{entry::Raw, settings::StartFrom};

/// An entry as Redis tells it; one that was trimmed away has no fields.
type Told = (String, Option<Vec<Vec<u8>>>);

/// A group, and this process's name in it.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) event: String,
    pub(super) name: String,
    pub(super) consumer: String,
}

/// What was read: entries, and the ids of those that are no longer there.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) entries: Vec<Raw>,
    pub(super) trimmed: Vec<String>,
}

impl Page {
    fn new(told: Vec<Told>) -> Self {
        let mut page = Self::default();
        for (id, fields) in told {
            match fields {
                Some(fields) => page.entries.push(Raw::new(id, fields)),
                None => page.trimmed.push(id),
            }
        }
        page
    }
}

impl Group {
    /// Makes the group, and the stream, if they are not there.
    pub(super) async fn create(&self, link: &mut Link, from: StartFrom) -> RedisResult<()> {
        let from = match from {
            StartFrom::Oldest => "0",
            StartFrom::Now => "$",
        };
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&self.event).arg(&self.name).arg(from).arg("MKSTREAM");
        match create.exec_async(link).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            done => done,
        }
    }

    /// New entries; waits so long for the first.
    pub(super) async fn read(&self, link: &mut Link, count: usize, wait: Duration) -> RedisResult<Page> {
        let mut read = self.read_group(count);
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        read.arg("BLOCK").arg(wait.max(1)).arg("STREAMS").arg(&self.event).arg(">");
        Self::page(read, link).await
    }

    /// What this consumer has read before and not finished, after the entry `after`.
    pub(super) async fn unfinished(&self, link: &mut Link, count: usize, after: &str) -> RedisResult<Page> {
        let mut read = self.read_group(count);
        read.arg("STREAMS").arg(&self.event).arg(after);
        Self::page(read, link).await
    }

    fn read_group(&self, count: usize) -> Cmd {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.name).arg(&self.consumer).arg("COUNT").arg(count);
        read
    }

    async fn page(read: Cmd, link: &mut Link) -> RedisResult<Page> {
        let streams: Vec<(String, Vec<Told>)> = read.query_async(link).await?;
        Ok(Page::new(streams.into_iter().flat_map(|(_, told)| told).collect()))
    }

    /// Takes over what anybody in the group left for so long, from the entry `from` on; and where to go on, if there is more.
    pub(super) async fn take_over(
        &self,
        link: &mut Link,
        count: usize,
        idle: Duration,
        from: &str,
    ) -> RedisResult<(Page, Option<String>)> {
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let mut claim = redis::cmd("XAUTOCLAIM");
        claim.arg(&self.event).arg(&self.name).arg(&self.consumer).arg(idle).arg(from);
        let (next, told, trimmed): (String, Vec<Told>, Vec<String>) =
            claim.arg("COUNT").arg(count).query_async(link).await?;
        let mut page = Page::new(told);
        page.trimmed.extend(trimmed);
        Ok((page, Some(next).filter(|next| next != "0-0")))
    }

    /// These are done.
    pub(super) async fn ack(&self, link: &mut Link, ids: &[String]) -> RedisResult<()> {
        redis::cmd("XACK").arg(&self.event).arg(&self.name).arg(ids).exec_async(link).await
    }

    /// Takes this consumer's name out of the group, unless it holds something.
    pub(super) async fn leave(&self, link: &mut Link) -> RedisResult<()> {
        let script = Script::new(include_str!("leave.lua"));
        script.key(&self.event).arg(&self.name).arg(&self.consumer).invoke_async(link).await
    }
}
