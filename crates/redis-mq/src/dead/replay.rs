//! Replay: dead letters go back into their stream once what was wrong is mended.

use std::sync::Arc;

use super::{DeadLetter, DeadLetters, TOGETHER};
use crate::{Entry, EntryId, Error, scripts};

/// Who handles what is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReplayFor {
    /// The group that gave it up; listeners of other groups pass it over, as they have handled it. It has the field `duly-group`.
    #[default]
    ItsGroup,
    /// Every group.
    Everybody,
}

/// What a replay did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// The dead letters that were chosen, and where each stands now; nowhere in a dry run.
    pub entries: Vec<(EntryId, Option<EntryId>)>,
}

/// A replay, before it [runs](Self::run).
#[must_use = "nothing is replayed until it runs"]
pub struct Replay {
    dead: DeadLetters,
    wanted: Arc<dyn Fn(&DeadLetter) -> bool + Send + Sync>,
    who: ReplayFor,
    dry: bool,
}

impl DeadLetters {
    /// Puts one back. Answers where it stands now, or nothing if there is no such dead letter. It is taken out of the dead letters in
    /// the same moment; its message id stays, and its tries begin anew.
    ///
    /// Cancel safety: dropped midway, it may be back in its stream or not; call it again: nothing if it was.
    pub async fn replay(&self, id: impl AsRef<str>) -> Result<Option<EntryId>, Error> {
        self.mq.check_usable()?;
        match self.get(id).await? {
            Some(letter) => self.put_back(&letter, ReplayFor::ItsGroup).await,
            None => Ok(None),
        }
    }

    /// Puts all back that are there now, or [some of them](Replay::only).
    pub fn replay_all(&self) -> Replay {
        Replay { dead: self.clone(), wanted: Arc::new(|_| true), who: ReplayFor::ItsGroup, dry: false }
    }

    async fn put_back(&self, letter: &DeadLetter, who: ReplayFor) -> Result<Option<EntryId>, Error> {
        let group = match who {
            ReplayFor::ItsGroup => letter.group.as_str(),
            ReplayFor::Everybody => "",
        };
        let mut call = scripts::REPLAY.key(self.origin(&letter.stream));
        call.key(self.stream()).arg(letter.entry.id.as_str()).arg(group);
        let id: String = call
            .invoke_async(&mut self.link.clone())
            .await
            .map_err(|error| Error::over(&self.link, &error))?;
        Ok(Some(id).filter(|id| !id.is_empty()).map(EntryId::new))
    }
}

impl Replay {
    /// Only those that `wanted` says yes to.
    pub fn only(mut self, wanted: impl Fn(&DeadLetter) -> bool + Send + Sync + 'static) -> Self {
        self.wanted = Arc::new(wanted);
        self
    }

    /// For whom.
    pub fn to(mut self, who: ReplayFor) -> Self {
        self.who = who;
        self
    }

    /// Chooses, and changes nothing.
    pub fn dry_run(mut self) -> Self {
        self.dry = true;
        self
    }

    /// Does it. What dies again meanwhile is not replayed again: only what is there at the beginning is looked at.
    ///
    /// Cancel safety: dropped midway, some of them may be back in their streams, each of them whole; run it again for the rest.
    pub async fn run(self) -> Result<Replayed, Error> {
        let last = self.last().await?;
        let mut replayed = Replayed::default();
        let mut from = "-".to_owned();
        let Some(last) = last else { return Ok(replayed) };
        loop {
            let page = self.dead.range(&from, last.as_str(), TOGETHER).await?;
            let Some(end) = page.last() else { return Ok(replayed) };
            from = format!("({}", end.id);
            for letter in page.iter().filter_map(Entry::dead_letter).filter(|letter| (self.wanted)(letter)) {
                let id = letter.entry.id.clone();
                if self.dry {
                    replayed.entries.push((id, None));
                } else if let Some(now) = self.dead.put_back(&letter, self.who).await? {
                    replayed.entries.push((id, Some(now)));
                }
            }
        }
    }

    async fn last(&self) -> Result<Option<EntryId>, Error> {
        let mut last = redis::cmd("XREVRANGE");
        last.arg(self.dead.stream()).arg("+").arg("-").arg("COUNT").arg(1);
        let told: Vec<(String, Vec<Vec<u8>>)> = last
            .query_async(&mut self.dead.link.clone())
            .await
            .map_err(|error| Error::over(&self.dead.link, &error))?;
        Ok(told.into_iter().next().map(|(id, _)| EntryId::new(id)))
    }
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("dead", &self.dead).field("dry", &self.dry).finish_non_exhaustive()
    }
}
