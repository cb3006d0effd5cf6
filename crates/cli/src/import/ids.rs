//! Ids of lines: made for those that have none, and compared by a dry run.

use std::collections::{HashMap, hash_map::Entry};

use duly::MessageId;

use super::{Failure, Output, clock};

/// The limit of ids that are compared. Each takes 16 bytes: a hash of the id and one of the content, 8 bytes each. A full table has
/// 71 MB. The probability that two of them have the same hash is 1 to 2,700,000.
pub(super) const COMPARED_MAX: usize = 7 << 19;

/// The result that the server would give for an id.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IdCheck {
    /// It is new.
    First,
    /// It was there before, with the same content.
    Duplicate,
    /// It was there before, with other content.
    Conflict,
    /// Past the limit of compared ids.
    Unknown,
}

/// The ids that a dry run has seen so far.
pub(super) struct SeenIds {
    contents: HashMap<u64, u64>,
    max: usize,
}

impl Default for SeenIds {
    fn default() -> Self {
        Self { contents: HashMap::new(), max: COMPARED_MAX }
    }
}

impl SeenIds {
    pub(super) fn check(&mut self, id: &MessageId, content_hash: u64) -> IdCheck {
        let has_room = self.contents.len() < self.max;
        match self.contents.entry(id.hash64()) {
            Entry::Occupied(known) if *known.get() == content_hash => IdCheck::Duplicate,
            Entry::Occupied(_) => IdCheck::Conflict,
            Entry::Vacant(_) if !has_room => IdCheck::Unknown,
            Entry::Vacant(free) => {
                free.insert(content_hash);
                IdCheck::First
            }
        }
    }
}

/// The ids of lines that have none.
pub(super) struct GeneratedIds {
    prefix: String,
    /// The prefix was given, so that another run makes the same ids.
    is_given: bool,
    count: u64,
}

impl GeneratedIds {
    pub(super) fn new(given: Option<&str>) -> Result<Self, Failure> {
        // Made anew each time: within this run a call can be repeated, another run starts afresh.
        let prefix = given.map_or_else(|| format!("import-{:x}", clock::now_us()), str::to_owned);
        MessageId::parse(&format!("{prefix}-1"))
            .map_err(|fault| Failure::usage(format!("--ids: {}", fault.detail)))?;
        Ok(Self { prefix, is_given: given.is_some(), count: 0 })
    }

    pub(super) fn id(&mut self, number: u64) -> String {
        self.count += 1;
        format!("{}-{number}", self.prefix)
    }

    /// Prints at the first generated id how to repeat the import.
    pub(super) fn announce(&self, note: impl FnOnce(&str), dry_run: bool) {
        if self.count == 1 && !self.is_given && !dry_run {
            let (words, made) = ("lines without an id get one that begins with", &self.prefix);
            note(&format!("{words} {made}: to run this import again, use --ids {made}"));
        }
    }

    pub(super) fn conclude(&self, out: &Output, dry_run: bool) {
        if self.count > 0 && !self.is_given && !dry_run {
            let (count, made) = (self.count, &self.prefix);
            out.note(&format!(
                "{count} lines had no id: run again without --ids {made}, they would be sent again"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_ids_are_compared_as_there_is_room_for() {
        let mut ids = SeenIds { max: 2, ..SeenIds::default() };
        let mut check = |id: &str, content| ids.check(&MessageId::parse(id).unwrap(), content);
        assert_eq!([check("a", 1), check("b", 1)], [IdCheck::First, IdCheck::First]);
        assert_eq!([check("c", 1), check("c", 2)], [IdCheck::Unknown, IdCheck::Unknown]);
        assert_eq!([check("a", 1), check("b", 2)], [IdCheck::Duplicate, IdCheck::Conflict]);
    }
}
