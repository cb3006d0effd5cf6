//! A line for everything that happens.

use std::time::{Duration, Instant};

use crate::{Failure, Output, Tint, clock, progress::Progress};

/// How long one step may take. The longest takes a quarter of it; a machine that needs this long has a fault to report.
const STEP_MAX: Duration = Duration::from_secs(60);

/// Writes what happens, with the seconds since the beginning, in at most 80 columns.
pub(super) struct Narrator<'a> {
    out: &'a Output,
    began: Instant,
    /// The bar below the lines.
    bar: Option<Progress>,
}

impl<'a> Narrator<'a> {
    pub(super) fn new(out: &'a Output) -> Self {
        Self { out, began: clock::instant(), bar: None }
    }

    /// Writes its lines above this bar from now on.
    pub(super) fn above(&mut self, bar: Progress) {
        self.bar = Some(bar);
    }

    /// The time, for a line that is written later.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn line(&self, tint: Tint, what: &str, words: &str) {
        self.line_of(self.now(), tint, what, words);
    }

    pub(super) fn line_of(&self, at: Duration, tint: Tint, what: &str, words: &str) {
        let at = self.out.tint_words(Tint::Dim, &format!("{:8.2} s", at.as_secs_f64()));
        let what = self.out.tint_words(tint, &format!("{what:<9}"));
        self.write(&format!("{at}  {what}  {words}"));
    }

    /// A step of the demo, under its title. A failure names it.
    pub(super) async fn step<T>(
        &self,
        number: u32,
        title: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.write(&format!("\n{}", self.out.tint_words(Tint::Bold, &format!("{number}  {title}"))));
        let failed = |why: &str| Failure::failed(format!("step {number}, {title}: {why}"));
        match tokio::time::timeout(STEP_MAX, work).await {
            Ok(done) => done.map_err(|failure| failed(&failure.words)),
            Err(_) => Err(failed(&format!("it is not done within {} s", STEP_MAX.as_secs()))),
        }
    }

    fn write(&self, words: &str) {
        match &self.bar {
            Some(bar) => bar.note(self.out, words),
            None => self.out.note(words),
        }
    }
}
