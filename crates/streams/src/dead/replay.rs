//! Replay: dead letters are appended to their stream again.

use std::sync::Arc;

use super::{DeadLetter, DeadLetters, PAGE_SIZE};
use crate::{Entry, EntryId, Error, scripts};

/// Which groups handle a replayed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReplayFor {
    /// The group that gave it up; other groups have handled it and acknowledge it. The entry has the field
    /// `duly-group`.
    #[default]
    OriginalGroup,
    /// Every group.
    AllGroups,
}

/// The result of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// The selected dead letters, and the new id of each; `None` in a dry run.
    pub entries: Vec<(EntryId, Option<EntryId>)>,
}

/// A replay before it is [run](Self::run).
#[must_use = "nothing is replayed until it runs"]
pub struct Replay {
    dead: DeadLetters,
    wanted: Arc<dyn Fn(&DeadLetter) -> bool + Send + Sync>,
    groups: ReplayFor,
    dry: bool,
}

impl DeadLetters {
    /// Replays one dead letter. Returns its new id, or `None` if there is no such dead letter. It leaves the dead
    /// letters atomically, keeps its message id, and its attempts start anew.
    ///
    /// Cancel safety: dropped midway, it may be replayed or not; call it again: `None` if it was.
    pub async fn replay(&self, id: impl AsRef<str>) -> Result<Option<EntryId>, Error> {
        self.streams.check_usable()?;
        match self.get(id).await? {
            Some(letter) => self.replay_one(&letter, ReplayFor::OriginalGroup).await,
            None => Ok(None),
        }
    }

    /// Builds a replay of all current dead letters, or of [some](Replay::only).
    pub fn replay_all(&self) -> Replay {
        Replay {
            dead: self.clone(),
            wanted: Arc::new(|_| true),
            groups: ReplayFor::OriginalGroup,
            dry: false,
        }
    }

    async fn replay_one(&self, letter: &DeadLetter, groups: ReplayFor) -> Result<Option<EntryId>, Error> {
        let group = match groups {
            ReplayFor::OriginalGroup => letter.group.as_str(),
            ReplayFor::AllGroups => "",
        };
        let mut call = scripts::REPLAY.key(self.origin(&letter.stream));
        call.key(self.stream()).arg(letter.entry.id.as_str()).arg(group);
        let id: String = call
            .invoke_async(&mut self.link.clone())
            .await
            .map_err(|error| Error::from_link(&self.link, &error))?;
        Ok(Some(id).filter(|id| !id.is_empty()).map(EntryId::new))
    }
}

impl Replay {
    /// Selects dead letters.
    pub fn only(mut self, wanted: impl Fn(&DeadLetter) -> bool + Send + Sync + 'static) -> Self {
        self.wanted = Arc::new(wanted);
        self
    }

    /// Sets which groups handle them.
    pub fn to(mut self, groups: ReplayFor) -> Self {
        self.groups = groups;
        self
    }

    /// Selects without changing anything.
    pub fn dry_run(mut self) -> Self {
        self.dry = true;
        self
    }

    /// Runs the replay. Entries that become dead letters meanwhile are not replayed again.
    ///
    /// Cancel safety: dropped midway, some may be replayed, each of them completely; run it again for the rest.
    pub async fn run(self) -> Result<Replayed, Error> {
        let last = self.last().await?;
        let mut replayed = Replayed::default();
        let mut from = "-".to_owned();
        let Some(last) = last else { return Ok(replayed) };
        loop {
            let page = self.dead.range(&from, last.as_str(), PAGE_SIZE).await?;
            let Some(end) = page.last() else { return Ok(replayed) };
            from = format!("({}", end.id);
            for letter in page.iter().filter_map(Entry::dead_letter).filter(|letter| (self.wanted)(letter)) {
                let id = letter.entry.id.clone();
                if self.dry {
                    replayed.entries.push((id, None));
                } else if let Some(now) = self.dead.replay_one(&letter, self.groups).await? {
                    replayed.entries.push((id, Some(now)));
                }
            }
        }
    }

    async fn last(&self) -> Result<Option<EntryId>, Error> {
        self.dead.streams.check_usable()?;
        let mut last = redis::cmd("XREVRANGE");
        last.arg(self.dead.stream()).arg("+").arg("-").arg("COUNT").arg(1);
        let reply: Vec<(String, Vec<Vec<u8>>)> = last
            .query_async(&mut self.dead.link.clone())
            .await
            .map_err(|error| Error::from_link(&self.dead.link, &error))?;
        Ok(reply.into_iter().next().map(|(id, _)| EntryId::new(id)))
    }
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("dead", &self.dead).field("dry", &self.dry).finish_non_exhaustive()
    }
}
