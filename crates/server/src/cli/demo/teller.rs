//! A line for everything that happens.

use std::time::Instant;

use crate::cli::{Output, Tint, clock};

/// Tells what happens, with the seconds since the beginning.
pub(super) struct Teller<'a> {
    out: &'a Output,
    began: Instant,
}

impl<'a> Teller<'a> {
    pub(super) fn new(out: &'a Output) -> Self {
        Self { out, began: clock::instant() }
    }

    pub(super) fn line(&mut self, tint: Tint, what: &str, id: &str, words: &str) {
        let out = self.out;
        out.say(&format!(
            "{}  {}  {id:<9} {}",
            out.tint_words(Tint::Dim, &format!("{:6.3} s", self.began.elapsed().as_secs_f64())),
            out.tint_words(tint, &format!("{what:<10}")),
            out.tint_words(Tint::Dim, words),
        ));
    }
}
