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
}

impl<'a> PageBuilder<'a> {
    pub(super) fn new(query: &'a Query) -> Self {
        Self { query, rows: BTreeMap::new() }
    }

    /// Whether the page is full and everything on it is due before `due`.
    pub(super) fn is_past(&self, due: Timestamp) -> bool {
        self.rows.len() > self.query.limit
            && self.rows.last_key_value().is_some_and(|((last, _), _)| due > *last)
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
        let full = self.rows.len() > self.query.limit;
        let fits = !full
            || self
                .rows
                .last_key_value()
                .is_some_and(|((last, last_id), _)| (due, id) < (*last, last_id.as_str()));
        after && within && fits
    }

    pub(super) fn take(&mut self, record: Record) {
        if self.query.matches(&record.message) {
            self.rows.insert((record.message.due, record.message.id.clone()), record);
            // One row more than asked for says that there is another page.
            if self.rows.len() > self.query.limit + 1 {
                self.rows.pop_last();
            }
        }
    }

    pub(super) fn into_page(mut self) -> Page {
        let more = self.rows.len() > self.query.limit;
        if more {
            self.rows.pop_last();
        }
        let next = if more { self.rows.last_key_value().map(|(key, _)| key.clone()) } else { None };
        Page::new(self.rows.into_values().collect(), next)
    }
}
