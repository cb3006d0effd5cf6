//! Room for the results of a batch that its client has not read yet.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use axum::body::Bytes;
use tokio::{sync::watch, time::timeout};

use super::{
    answer_memory::{AnswerShare, UNSHARED_BYTES_MAX},
    app::App,
    caller::Who,
    slow_reader::Unread,
};

/// What the results of one batch take.
#[derive(Clone)]
pub(super) struct UnreadResults(Arc<Inner>);

struct Inner {
    /// Bytes that need no share, as few are unread.
    unshared: AtomicUsize,
    /// Bytes of queued results that hold a share.
    held: watch::Sender<usize>,
}

impl UnreadResults {
    /// Nothing is unread. The second is for the response.
    pub(super) fn new() -> (Self, Unread) {
        let (held, unread) = watch::channel(0);
        (Self(Arc::new(Inner { unshared: AtomicUsize::new(0), held })), Unread(unread))
    }

    /// Waits for room for results of `bytes`, as long as for a part of the request; `None` if there is none in time.
    pub(super) async fn room(&self, app: &App, who: &Who, bytes: usize) -> Option<ResultRoom> {
        let mut room = ResultRoom {
            unread: self.clone(),
            unshared: 0,
            share: app.answers.batch_share(who.caller()),
            is_queued: false,
        };
        // One group after the other asks for room, so the count only falls meanwhile.
        if self.0.unshared.load(Relaxed) + bytes <= UNSHARED_BYTES_MAX {
            self.0.unshared.fetch_add(bytes, Relaxed);
            room.unshared = bytes;
        } else if !room.share.reserve(bytes) {
            let waits = app.answers.batch_share(who.caller()).wait(bytes);
            room.share = timeout(app.http.body_timeout, waits).await.ok()?;
        }
        Some(room)
    }
}

/// Room for the results of a group.
pub(super) struct ResultRoom {
    unread: UnreadResults,
    unshared: usize,
    share: AnswerShare,
    is_queued: bool,
}

impl ResultRoom {
    /// The text, which holds its room until it is written or the connection is closed.
    pub(super) fn hold(mut self, mut text: Vec<u8>) -> Bytes {
        text.shrink_to_fit();
        if self.unshared == 0 {
            self.share.shrink_to(text.len());
            let bytes = self.share.bytes();
            self.unread.0.held.send_modify(|held| *held += bytes);
            self.is_queued = true;
        }
        Bytes::from_owner(HeldText { text, _room: self })
    }
}

impl Drop for ResultRoom {
    fn drop(&mut self) {
        self.unread.0.unshared.fetch_sub(self.unshared, Relaxed);
        if self.is_queued {
            let bytes = self.share.bytes();
            self.unread.0.held.send_modify(|held| *held -= bytes);
        }
    }
}

struct HeldText {
    text: Vec<u8>,
    _room: ResultRoom,
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}
