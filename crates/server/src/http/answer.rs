//! Response bodies, bounded in bytes over all connections: a client may be slow to read them.

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use duly::ErrorCode;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::{sync::watch, time::Instant};

use super::{
    answer_memory::AnswerShare,
    app::App,
    caller::Who,
    fault::{ApiResult, Fault},
    slow_reader::Unread,
};

const JSON: &str = "application/json";

/// Text that holds its share until the last byte of it is written, or its connection is closed.
struct HeldText<S> {
    text: Bytes,
    _share: S,
    unread: watch::Sender<usize>,
}

impl<S> AsRef<[u8]> for HeldText<S> {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl<S> Drop for HeldText<S> {
    fn drop(&mut self) {
        self.unread.send_replace(0);
    }
}

fn response(mut text: Vec<u8>, mut share: AnswerShare, kind: &'static str) -> Response {
    text.shrink_to_fit();
    share.shrink(text.len());
    let bytes = share.bytes();
    held(text.into(), share, bytes, kind)
}

/// A response that holds `bytes` of memory until it is read.
fn held(text: Bytes, share: impl Send + 'static, bytes: usize, kind: &'static str) -> Response {
    let (unread, bytes) = watch::channel(bytes);
    let body = Body::from(Bytes::from_owner(HeldText { text, _share: share, unread }));
    let mut response = ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response();
    response.extensions_mut().insert(Unread(bytes));
    response
}

/// The error of an answer that finds no room.
pub(super) fn no_room() -> Fault {
    let detail = "many large answers wait for clients to read them; try again in a second";
    Fault::new(ErrorCode::Busy, detail)
}

/// The share of the results of receipts, taken before they are settled: a repeated call would be answered `lost`.
pub(super) fn receipts_room(app: &App, who: &Who, bytes: usize) -> ApiResult<AnswerShare> {
    grown(app.answers.receipts_share(who.caller()), bytes)
}

fn grown(mut share: AnswerShare, bytes: usize) -> ApiResult<AnswerShare> {
    if share.grow(bytes) { Ok(share) } else { Err(no_room()) }
}

/// An answer that may be large.
pub(super) fn json(app: &App, who: &Who, value: &impl Serialize) -> ApiResult<Response> {
    // These types always serialize.
    let text = serde_json::to_vec(value).unwrap_or_default();
    grown(app.answers.share(who.caller()), text.len()).map(|share| response(text, share, JSON))
}

/// An answer for which there is room.
pub(super) fn json_in(share: AnswerShare, value: &impl Serialize) -> Response {
    // These types always serialize.
    response(serde_json::to_vec(value).unwrap_or_default(), share, JSON)
}

/// The metrics, which are answered always: if there is no room for them, with a recent text that others may be reading as well.
pub(super) fn metrics(app: &App, who: &Who, text: Vec<u8>) -> Response {
    const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
    match grown(app.answers.share(who.caller()), text.len()) {
        Ok(share) => response(text, share, KIND),
        Err(_) => {
            let text = app.answers.metrics.recent(Instant::now(), text);
            let bytes = text.len();
            held(text, (), bytes, KIND)
        }
    }
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
    pub(super) fn push(&mut self, message: &impl Serialize) -> Result<(), usize> {
        let before = self.text.len();
        if self.is_begun {
            self.text.push(b',');
        }
        // These types always serialize.
        let _ = serde_json::to_writer(&mut self.text, message);
        let bytes = self.text.len();
        // Only a single message may have more than a caller's part of the memory.
        let is_small_enough = !self.is_begun || bytes <= self.share.bytes_max();
        if is_small_enough && self.share.grow(bytes) {
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
        response(self.text, self.share, JSON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        auth::{Caller, Tokens},
        http::answer_memory::AnswerMemory,
    };

    #[test]
    fn a_response_keeps_its_share_until_its_last_byte_is_gone() {
        let memory = AnswerMemory::new(100 << 10, &Tokens::new(Vec::new()));
        let mut share = memory.share(&Caller::anyone());
        assert!(share.grow(60 << 10));
        let (unread, bytes) = watch::channel(share.bytes());
        let text = Bytes::from_owner(HeldText { text: vec![b' '; 60 << 10].into(), _share: share, unread });
        let last = text.slice(text.len() - 1..);
        drop(text);
        assert_eq!((memory.free(), *bytes.borrow()), (40 << 10, 60 << 10));
        drop(last);
        assert_eq!((memory.free(), *bytes.borrow()), (100 << 10, 0));
    }
}
