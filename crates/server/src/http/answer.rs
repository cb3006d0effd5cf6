//! Response bodies, bounded in bytes over all connections: a client may be slow to read them.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use duly::ErrorCode;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    app::App,
    fault::{ApiResult, Fault},
};

/// An answer up to this size needs no share of the memory set aside for answers.
const UNSHARED_BYTES_MAX: usize = 16 << 10;

/// The memory for answers that clients have not read yet.
pub(super) struct AnswerMemory {
    free: Arc<Semaphore>,
    total: usize,
}

impl AnswerMemory {
    pub(super) fn new(total: usize) -> Self {
        let total = total.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(total)), total }
    }

    /// Waits for the share of an answer of `bytes`.
    pub(super) async fn share(&self, bytes: usize) -> AnswerShare {
        let permits = self.permits(bytes);
        // The semaphore is never closed.
        AnswerShare(Arc::clone(&self.free).acquire_many_owned(permits).await.ok())
    }

    /// An answer that is larger than all of the memory is written while it has all of it.
    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(shared(bytes).min(self.total)).unwrap_or(u32::MAX)
    }
}

/// A share of the [`AnswerMemory`], released on drop. Small answers need none.
#[derive(Default)]
pub(super) struct AnswerShare(Option<OwnedSemaphorePermit>);

impl AnswerShare {
    /// Whether it holds memory.
    pub(super) fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// Grows the share to an answer of `bytes`; false if there is no room, and then nothing changed.
    fn grow(&mut self, memory: &AnswerMemory, bytes: usize) -> bool {
        let held = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = (memory.permits(bytes) as usize).checked_sub(held).filter(|more| *more > 0) else {
            return true;
        };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(taken) = Arc::clone(&memory.free).try_acquire_many_owned(more) else { return false };
        match &mut self.0 {
            Some(held) => held.merge(taken),
            None => self.0 = Some(taken),
        }
        true
    }

    /// Gives back what an answer of `bytes` does not need.
    fn shrink(&mut self, bytes: usize) {
        if let Some(held) = &mut self.0 {
            drop(held.split(held.num_permits().saturating_sub(shared(bytes))));
        }
    }
}

/// What of `bytes` counts as large.
fn shared(bytes: usize) -> usize {
    if bytes <= UNSHARED_BYTES_MAX { 0 } else { bytes }
}

/// Text that holds its share until the last byte of it is written, or its connection is closed.
struct SharedText {
    text: Vec<u8>,
    _share: AnswerShare,
}

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

fn response(mut text: Vec<u8>, mut share: AnswerShare) -> Response {
    text.shrink_to_fit();
    share.shrink(text.len());
    let body = Body::from(Bytes::from_owner(SharedText { text, _share: share }));
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// The error of an answer that finds no room.
pub(super) fn no_room() -> Fault {
    let detail = "many large answers wait for clients to read them; try again in a second";
    Fault::new(ErrorCode::Busy, detail)
}

/// An answer that may be large.
pub(super) fn json(app: &App, value: &impl Serialize) -> ApiResult<Response> {
    // These types always serialize.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut share = AnswerShare::default();
    if share.grow(&app.answers, text.len()) { Ok(response(text, share)) } else { Err(no_room()) }
}

/// An answer with as many messages as there is room for: `{"messages":[…]`, and further fields.
pub(super) struct Messages {
    text: Vec<u8>,
    share: AnswerShare,
    is_begun: bool,
}

impl Messages {
    /// Without messages. `share` is used before more is taken.
    pub(super) fn new(share: AnswerShare) -> Self {
        Self { text: b"{\"messages\":[".to_vec(), share, is_begun: false }
    }

    /// Whether it has no message.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_begun
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Appends a message. If there is no room for it nothing changes, and the error is what the answer with it has in bytes.
    pub(super) fn push(&mut self, app: &App, message: &impl Serialize) -> Result<(), usize> {
        let before = self.text.len();
        if self.is_begun {
            self.text.push(b',');
        }
        // These types always serialize.
        let _ = serde_json::to_writer(&mut self.text, message);
        let bytes = self.text.len();
        // Only a single message may have more than all of the memory.
        let is_small_enough = !self.is_begun || bytes <= app.answers.total;
        if is_small_enough && self.share.grow(&app.answers, bytes) {
            self.is_begun = true;
            return Ok(());
        }
        self.text.truncate(before);
        Err(bytes)
    }

    /// The whole answer, with a cursor if it goes on.
    pub(super) fn end(mut self, cursor: Option<&str>) -> Response {
        self.text.push(b']');
        if let Some(cursor) = cursor {
            self.text.extend_from_slice(b",\"cursor\":");
            // Text always serializes.
            let _ = serde_json::to_writer(&mut self.text, cursor);
        }
        self.text.push(b'}');
        response(self.text, self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_share_is_of_large_answers_and_the_largest_has_all() {
        let memory = AnswerMemory::new(100 << 10);
        let mut small = AnswerShare::default();
        assert!(small.grow(&memory, UNSHARED_BYTES_MAX) && small.0.is_none());
        assert!(small.grow(&memory, 40 << 10) && small.grow(&memory, 60 << 10));
        assert_eq!(memory.free.available_permits(), 40 << 10);
        let mut other = AnswerShare::default();
        assert!(!other.grow(&memory, 1 << 30) && other.0.is_none(), "a refused share holds nothing");
        assert!(other.grow(&memory, 40 << 10));
        small.shrink(30 << 10);
        assert_eq!(memory.free.available_permits(), 30 << 10);
        drop((small, other));
        let all = memory.share(1 << 30).await;
        assert_eq!(memory.free.available_permits(), 0);
        drop(all);
        assert_eq!(memory.free.available_permits(), 100 << 10);
    }

    #[test]
    fn a_response_keeps_its_share_until_its_last_byte_is_gone() {
        let memory = AnswerMemory::new(100 << 10);
        let mut share = AnswerShare::default();
        assert!(share.grow(&memory, 60 << 10));
        let text = Bytes::from_owner(SharedText { text: vec![b' '; 60 << 10], _share: share });
        let last = text.slice(text.len() - 1..);
        drop(text);
        assert_eq!(memory.free.available_permits(), 40 << 10);
        drop(last);
        assert_eq!(memory.free.available_permits(), 100 << 10);
    }
}
