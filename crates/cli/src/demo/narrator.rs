//! A line for everything that happens.

use std::time::{Duration, Instant};

use crate::{Output, Tint, clock};

/// Tells what happens, with the seconds since the beginning.
pub(super) struct Narrator<'a> {
    out: &'a Output,
    began: Instant,
}

impl<'a> Narrator<'a> {
    pub(super) fn new(out: &'a Output) -> Self {
        Self { out, began: clock::instant() }
    }

    /// The time, for a line that is told later.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn line(&mut self, tint: Tint, what: &str, id: &str, words: &str) {
        self.line_of(self.now(), tint, what, id, words);
    }

    pub(super) fn line_of(&mut self, at: Duration, tint: Tint, what: &str, id: &str, words: &str) {
        let out = self.out;
        out.note(&format!(
            "{}  {}  {id:<9} {}",
            out.tint_words(Tint::Dim, &format!("{:6.3} s", at.as_secs_f64())),
            out.tint_words(tint, &format!("{what:<10}")),
            out.tint_words(Tint::Dim, words),
        ));
    }
}
