//! Parts of runs that the disk cannot read now. They are set aside: their messages wait, and their lanes go on behind them.

use std::collections::BTreeMap;

use duly_core::Monotonic;

use super::{
    engine::Engine,
    index::Marks,
    lanes::{Extent, ReleaseKey},
    options::UNREAD_AFTER,
    survey::{Survey, UnreadPart, Unreadable},
    table::KeyRecord,
};

/// A part of the backlog of a lane that is set aside.
#[derive(Debug)]
struct UnreadExtent {
    /// Its key is no later than those of the messages in it.
    extent: Extent,
    /// How many messages wait in it; one, if that is not known.
    waiting: u64,
    /// Claims read it again from then on.
    again: Monotonic,
    error: String,
}

/// All of them, by lane, table and where they begin.
///
/// Invariant: no lane has an extent that overlaps with one of these. They come back as [extents of the lane](super::lanes::Extent) once
/// they can be read.
#[derive(Debug, Default)]
pub(super) struct UnreadExtents(BTreeMap<(u32, u32, u64), UnreadExtent>);

impl UnreadExtents {
    fn of_lane(&self, lane: u32) -> impl Iterator<Item = &UnreadExtent> {
        self.0.range((lane, 0, 0)..=(lane, u32::MAX, u64::MAX)).map(|(_, unread)| unread)
    }

    /// Of those of a lane that are to be read again, the one that goes first.
    pub(super) fn due(&self, lane: u32, now: Monotonic) -> Option<&Extent> {
        let due = self.of_lane(lane).filter(|unread| unread.again <= now);
        due.map(|unread| &unread.extent).min_by(|a, b| a.key.cmp(&b.key))
    }

    /// Nothing that is set aside of a lane is released before this.
    pub(super) fn first(&self, lane: u32) -> Option<&ReleaseKey> {
        self.of_lane(lane).map(|unread| &unread.extent.key).min()
    }

    pub(super) fn has(&self, lane: u32, part: &UnreadPart) -> bool {
        self.0.contains_key(&(lane, part.table, part.from))
    }

    /// Messages that wait because the disk cannot read them.
    pub(super) fn waiting(&self) -> u64 {
        self.0.values().map(|unread| unread.waiting).sum()
    }

    /// Nothing of this table is alive any more.
    pub(super) fn forget_table(&mut self, table: u32) {
        self.0.retain(|(_, of, _), _| *of != table);
    }

    /// Forgets those of lanes in which nothing waits.
    pub(super) fn forget_lanes(&mut self, waits: impl Fn(u32) -> bool) {
        self.0.retain(|(lane, ..), _| waits(*lane));
    }
}

impl Engine {
    /// The backlog of a lane goes on as a survey of an unread part has found it. What the disk cannot read is set aside, if any messages
    /// wait in it.
    pub(super) fn go_on_behind(&mut self, lane: u32, part: &UnreadPart, found: Survey, waiting: u64) {
        let unread = self.tables.unread_mut().0.remove(&(lane, part.table, part.from));
        let was_set_aside = unread.is_some();
        // All of it may have moved elsewhere during the survey.
        let is_alive = self.tables.get(part.table).is_some_and(|table| table.live() > 0);
        let waiting = if is_alive { waiting } else { 0 };
        let Some(mut state) = self.lanes.get_mut(lane) else { return };
        let extent = match unread {
            Some(unread) => unread.extent,
            // Another claim may have gone on with it meanwhile.
            None => match state.take_extent(part.table, part.from) {
                Some(extent) => extent,
                None => return,
            },
        };
        let Extent { table, end, key, .. } = extent;
        let name = state.lane().to_string();
        let from = part.from;
        match found.unreadable.as_ref().filter(|_| waiting > 0) {
            Some(Unreadable { range, error }) if !was_set_aside => {
                let to = range.end;
                tracing::error!(lane = name, table, from, to, waiting, %error, "backlog part unreadable; set aside");
            }
            None if was_set_aside => tracing::info!(lane = name, table, from, "backlog part readable again"),
            _ => {}
        }
        self.add_parts(lane, Extent { table, next: from, end, key }, found, waiting);
    }

    /// The extent of a run that a lane has when the store is opened, as a survey of its live entries has found it.
    pub(super) fn add_surveyed(&mut self, live: &[KeyRecord], found: Survey, end: u64) {
        let Some(first) = live.first() else { return };
        let table = found.table();
        let in_part = |key: &&KeyRecord| {
            let part = found.unreadable.as_ref();
            part.is_some_and(|part| part.range.contains(&key.position(table).offset()))
        };
        let waiting = live.iter().filter(in_part).count() as u64;
        if let Some(Unreadable { range, error }) = &found.unreadable {
            let (from, to) = (range.start, range.end);
            tracing::error!(table, from, to, waiting, %error, "backlog part unreadable; set aside");
        }
        let next = first.position(table).offset();
        let key = ReleaseKey::from(first.ready);
        self.add_parts(first.lane, Extent { table, next, end, key }, found, waiting);
    }

    /// Adds the parts of an extent: to the lane what can be read, and to those that are set aside what the disk cannot read, if anything
    /// waits in it.
    fn add_parts(&mut self, number: u32, extent: Extent, found: Survey, waiting: u64) {
        let Some(mut lane) = self.lanes.get_mut(number) else { return };
        let Extent { table, end, key, .. } = extent;
        let before = found.unreadable.as_ref().map_or(end, |unreadable| unreadable.range.start);
        for (first, end) in [(found.head, before), (found.rest, end)] {
            if let Some((next, key)) = first {
                lane.add_extent(Extent { table, next, end, key });
            }
        }
        if let Some(Unreadable { range, error }) = found.unreadable.filter(|_| waiting > 0) {
            let extent = Extent { table, next: range.start, end: range.end, key };
            let (again, error) = (self.now.mono().saturating_add(UNREAD_AFTER), error.to_string());
            let unread = UnreadExtent { extent, waiting, again, error };
            self.tables.unread_mut().0.insert((number, table, range.start), unread);
        }
    }

    /// How many of the messages with these keys wait in the backlog of their lane.
    pub(super) fn count_waiting(&self, table: u32, keys: &[KeyRecord]) -> u64 {
        let waits = |marks: Marks| marks.near && !marks.claimed;
        let waits = |key: &&KeyRecord| self.index.marks(key.hash, key.position(table)).is_some_and(waits);
        keys.iter().filter(waits).count() as u64
    }

    /// What health says of parts that are set aside.
    pub(super) fn unread_words(&self) -> Option<String> {
        let unread = self.tables.unread();
        let ((lane, ..), first) = unread.0.first_key_value()?;
        let lane = self.lanes.get(*lane).map(|state| state.lane().to_string()).unwrap_or_default();
        let Extent { table, next, end, .. } = first.extent;
        let others = match unread.0.len() - 1 {
            0 => String::new(),
            count => format!(", nor {count} other parts of backlogs"),
        };
        let (waiting, error) = (unread.waiting(), &first.error);
        Some(format!(
            "the disk cannot read bytes {next} to {end} of table-{table}.data, of {lane}{others} ({error}); {waiting} messages in them \
             wait, all others go on; look at the disk"
        ))
    }
}
