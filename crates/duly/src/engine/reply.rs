//! A completion that is always sent.

use tokio::sync::mpsc::UnboundedSender;

use super::{Completion, Input};

/// Sends a completion to the driver when dropped, so that a store or sink that panics completes its call as well:
/// otherwise its lane would wait for ever.
pub(crate) struct ReplyOnDrop {
    inputs: UnboundedSender<Input>,
    completion: Option<Completion>,
}

impl ReplyOnDrop {
    /// `otherwise` is sent unless [`send`](Self::send) is called.
    pub(crate) fn new(inputs: UnboundedSender<Input>, otherwise: Completion) -> Self {
        Self { inputs, completion: Some(otherwise) }
    }

    pub(crate) fn send(mut self, completion: Completion) {
        self.completion = Some(completion);
    }
}

impl Drop for ReplyOnDrop {
    fn drop(&mut self) {
        if let Some(completion) = self.completion.take() {
            // The driver ends only after the shutdown.
            let _ = self.inputs.send(completion.into());
        }
    }
}
