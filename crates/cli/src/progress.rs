//! How far long work is, for a terminal.

use std::fmt::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::{Output, clock};

/// A bar on a terminal; nothing anywhere else.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn start(out: &Output, size: Option<u64>) -> Self {
        let template = match size {
            Some(_) => "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{spinner} {bytes}, {bytes_per_sec}",
        };
        Self::with(out, size, template)
    }

    pub(crate) fn of_members(out: &Output, count: u64) -> Self {
        Self::with(out, Some(count), "{bar:30} {human_pos} of {human_len} members, {per_sec}, {eta} left")
    }

    pub(crate) fn of_messages(out: &Output, count: u64) -> Self {
        Self::with(out, Some(count), "{bar:30} {human_pos} of {human_len} messages, {per_sec}, {eta} left")
    }

    /// One that leaves room for its numbers in 80 columns.
    pub(crate) fn of_accepted(out: &Output, count: u64) -> Self {
        Self::with(out, Some(count), "{bar:24} {human_pos} of {human_len} accepted, {rate} a second")
    }

    fn with(out: &Output, size: Option<u64>, template: &str) -> Self {
        // Hides itself where stderr is no terminal.
        let target =
            if out.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
        let bar = ProgressBar::with_draw_target(size, target);
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.with_key("rate", |state: &ProgressState, line: &mut dyn Write| {
            let _ = line.write_str(&clock::grouped(state.per_sec() as u64));
        }));
        Self { bar }
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Sets how many are done. The length grows with it.
    pub(crate) fn at(&self, count: u64) {
        self.bar.set_length(self.bar.length().unwrap_or(0).max(count));
        self.bar.set_position(count);
    }

    /// Sets the number of all, as far as it is known.
    pub(crate) fn of(&self, count: u64) {
        self.bar.set_length(count);
    }

    /// Prints a line above the bar.
    pub(crate) fn note(&self, out: &Output, words: &str) {
        self.bar.suspend(|| out.note(words));
    }

    pub(crate) fn complain(&self, out: &Output, words: &str) {
        self.bar.suspend(|| out.complain(words));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
