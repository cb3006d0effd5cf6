//! What a thread logs, to be read by a test. Also a module of tests of crates that this one needs.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    dispatcher::DefaultGuard,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// The events of this thread since it was made, until it is dropped.
pub struct Logs {
    lines: Lines,
    _guard: DefaultGuard,
    _other: Dispatch,
}

/// A line for each event, with its fields.
type Lines = Arc<Mutex<Vec<String>>>;

impl Default for Logs {
    fn default() -> Self {
        Self::new()
    }
}

impl Logs {
    /// From now on.
    pub fn new() -> Self {
        let lines = Lines::default();
        // Of a single one, a log line that another thread reaches first would be switched off for all threads.
        let other = Dispatch::new(Recorder(Lines::default()));
        let own = Dispatch::new(Recorder(lines.clone()));
        Self { lines, _guard: tracing::dispatcher::set_default(&own), _other: other }
    }

    /// The lines so far that have this text.
    pub fn with(&self, text: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

struct Recorder(Lines);

impl Subscriber for Recorder {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{field}={value:?} ");
    }
}
