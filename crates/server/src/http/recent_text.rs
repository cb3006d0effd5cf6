//! A text that many slow readers share.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use tokio::time::Instant;

/// How long a text is given out.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The last text that was given out. However many clients read slowly, there is one text for each second in memory.
#[derive(Default)]
pub(super) struct RecentText(Mutex<Option<(Instant, Bytes)>>);

impl RecentText {
    /// The last text if it is at most a second old, else `text`, which others get from now on.
    pub(super) fn recent(&self, now: Instant, text: Vec<u8>) -> Bytes {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, last)) = &*last
            && now.duration_since(*begun) < SHARED_FOR
        {
            return last.clone();
        }
        let text = Bytes::from(text.into_boxed_slice());
        *last = Some((now, text.clone()));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_second_share_one_text() {
        let (recent, begun) = (RecentText::default(), Instant::now());
        let first = recent.recent(begun, b"one".to_vec());
        let second = recent.recent(begun + SHARED_FOR / 2, b"two".to_vec());
        assert_eq!((first.as_ptr(), &*second), (second.as_ptr(), &b"one"[..]));
        assert_eq!(recent.recent(begun + SHARED_FOR, b"three".to_vec()), "three");
    }
}
