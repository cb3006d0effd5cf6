//! A page of a list while it is filled.

use std::collections::BTreeMap;

use duly_core::{
    MessageId, Record, Timestamp,
    store::{Page, Query},
};

/// The smallest rows so far, at most one more than fit on the page.
pub(super) struct PageBuilder<'a> {
    pub(super) query: &'a Query,
    rows: BTreeMap<(Timestamp, MessageId), Record>,
    bytes: usize,
}

impl<'a> PageBuilder<'a> {
    pub(super) fn new(query: &'a Query) -> Self {
        Self { query, rows: BTreeMap::new(), bytes: 0 }
    }

    /// Whether there are more rows than fit: by number, or by bytes, where the first one always fits.
    fn is_full(&self) -> bool {
        self.rows.len() > self.query.limit || (self.rows.len() > 1 && self.bytes > Page::BYTES_MAX)
    }

    /// Whether the page is full and everything on it is due before `due`.
    pub(super) fn is_past(&self, due: Timestamp) -> bool {
        self.is_full() && self.rows.last_key_value().is_some_and(|((last, _), _)| due > *last)
    }

    /// Whether a message due from `from` to `last` may be on the page. A bound that is not known is `None`.
    pub(super) fn may_hold(&self, from: Option<Timestamp>, last: Option<Timestamp>) -> bool {
        let first = self.query.after.as_ref().map(|(due, _)| *due).max(self.query.due_from);
        let too_early = last.zip(first).is_some_and(|(last, first)| last < first);
        let too_late =
            from.is_some_and(|from| self.query.due_to.is_some_and(|to| from >= to) || self.is_past(from));
        !too_early && !too_late
    }

    pub(super) fn may_take(&self, due: Timestamp, id: &str) -> bool {
        let after =
            self.query.after.as_ref().is_none_or(|(last, last_id)| (due, id) > (*last, last_id.as_str()));
        let within =
            self.query.due_from.is_none_or(|from| due >= from) && self.query.due_to.is_none_or(|to| due < to);
        let fits = !self.is_full()
            || self
                .rows
                .last_key_value()
                .is_some_and(|((last, last_id), _)| (due, id) < (*last, last_id.as_str()));
        after && within && fits
    }

    pub(super) fn take(&mut self, record: Record) {
        if self.query.matches(&record.message) {
            self.bytes += record.listed_bytes();
            let key = (record.message.due, record.message.id.clone());
            if let Some(before) = self.rows.insert(key, record) {
                self.bytes -= before.listed_bytes();
            }
            // One row more than fits says that there is another page.
            while self.has_two_too_many()
                && let Some((_, last)) = self.rows.pop_last()
            {
                self.bytes -= last.listed_bytes();
            }
        }
    }

    /// Whether the page is full without its last row, too.
    fn has_two_too_many(&self) -> bool {
        let Some((_, last)) = self.rows.last_key_value() else { return false };
        let (rows, bytes) = (self.rows.len() - 1, self.bytes - last.listed_bytes());
        rows > self.query.limit || (rows > 1 && bytes > Page::BYTES_MAX)
    }

    pub(super) fn into_page(mut self) -> Page {
        let more = self.is_full();
        if more {
            self.rows.pop_last();
        }
        let next = if more { self.rows.last_key_value().map(|(key, _)| key.clone()) } else { None };
        Page::new(self.rows.into_values().collect(), next)
    }
}
