//! An answer that is always given.

use tokio::sync::mpsc::UnboundedSender;

use super::Note;

/// Sends the driver its note when dropped: a store or sink that panics leaves an answer too, or its lane would
/// wait for ever.
pub(crate) struct Answer {
    notes: UnboundedSender<Note>,
    note: Option<Note>,
}

impl Answer {
    /// `otherwise` is sent unless [`give`](Self::give) is called.
    pub(crate) fn new(notes: UnboundedSender<Note>, otherwise: Note) -> Self {
        Self { notes, note: Some(otherwise) }
    }

    pub(crate) fn give(mut self, note: Note) {
        self.note = Some(note);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(note) = self.note.take() {
            // The driver is gone only when all is over.
            let _ = self.notes.send(note);
        }
    }
}
