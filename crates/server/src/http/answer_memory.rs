//! The memory for answers that clients have not read yet, over all connections.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::recent_text::RecentText;
use crate::auth::{Caller, Tokens};

/// An answer up to this size needs no share of the memory set aside for answers.
pub(super) const UNSHARED_BYTES_MAX: usize = 16 << 10;
/// Memory for the results of acks, nacks and extends alone, and as much for those of batches: clients that do not read large answers
/// take none of it.
pub(super) const RESERVE_BYTES: usize = 16 << 20;

/// The memory for large answers. Each token for some topics has an equal part at most, or one answer that is larger.
pub(super) struct AnswerMemory {
    large: Arc<Pool>,
    receipts: Arc<Pool>,
    batches: Arc<Pool>,
    /// The metrics, which are answered without a share if there is none.
    pub(super) metrics: RecentText,
    /// The tokens for some topics, by name: their places in [`Used::by_token`].
    limited: HashMap<String, usize>,
}

struct Pool {
    total: usize,
    part: usize,
    used: Mutex<Used>,
    /// Notified when any pool has room again.
    released: Arc<Notify>,
}

struct Used {
    all: usize,
    by_token: Vec<usize>,
}

impl AnswerMemory {
    pub(super) fn new(total: usize, tokens: &Tokens) -> Self {
        let callers = tokens.iter().map(|token| &token.caller).filter(|caller| !caller.sees_all());
        let limited: HashMap<_, _> =
            callers.enumerate().map(|(place, caller)| (caller.name.clone(), place)).collect();
        let places = limited.values().max().map_or(0, |last| last + 1);
        let released = Arc::new(Notify::new());
        let pool = |total| {
            let (part, released) = (total / (limited.len() + 1), released.clone());
            let used = Mutex::new(Used { all: 0, by_token: vec![0; places] });
            Arc::new(Pool { total, part, used, released })
        };
        let (large, receipts, batches) = (pool(total), pool(RESERVE_BYTES), pool(RESERVE_BYTES));
        Self { large, receipts, batches, metrics: RecentText::default(), limited }
    }

    /// A share for an answer to this caller, with nothing in it.
    pub(super) fn share(&self, caller: &Caller) -> AnswerShare {
        self.share_of(&self.large, None, caller)
    }

    /// The same for the results of receipts: of their own memory, or of that for large answers.
    pub(super) fn receipts_share(&self, caller: &Caller) -> AnswerShare {
        self.share_of(&self.receipts, Some(&self.large), caller)
    }

    /// The same for results of a batch.
    pub(super) fn batch_share(&self, caller: &Caller) -> AnswerShare {
        self.share_of(&self.batches, Some(&self.large), caller)
    }

    fn share_of(&self, pool: &Arc<Pool>, other: Option<&Arc<Pool>>, caller: &Caller) -> AnswerShare {
        let token = self.limited.get(&caller.name).copied();
        AnswerShare { pool: pool.clone(), other: other.cloned(), token, bytes: 0 }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.large.total - self.large.used().all
    }
}

impl Pool {
    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A share of the [`AnswerMemory`], released on drop. Small answers need none.
pub(super) struct AnswerShare {
    pool: Arc<Pool>,
    /// Where it is taken from if the pool has no room.
    other: Option<Arc<Pool>>,
    /// The place of a token for some topics.
    token: Option<usize>,
    bytes: usize,
}

impl AnswerShare {
    /// Its bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that an answer of several parts may have.
    pub(super) fn bytes_max(&self) -> usize {
        if self.token.is_some() { self.pool.part } else { self.pool.total }
    }

    /// Grows the share to an answer of `bytes`; false if there is no room, and then nothing changed.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        self.reserve(shared(bytes))
    }

    /// Grows the share to `bytes`, also if they are few. More than all of the memory counts as all of it.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        if self.reserve_here(bytes) {
            return true;
        }
        let is_empty = self.bytes == 0;
        let Some(other) = self.other.take_if(|_| is_empty) else { return false };
        let own = std::mem::replace(&mut self.pool, other);
        if self.reserve_here(bytes) {
            return true;
        }
        self.other = Some(std::mem::replace(&mut self.pool, own));
        false
    }

    fn reserve_here(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.min(self.pool.total).checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        let mut used = self.pool.used();
        if used.all + more > self.pool.total {
            return false;
        }
        if let Some(token) = self.token {
            let others = used.by_token[token] - self.bytes;
            // The only answer of a token may be larger than its part.
            if others > 0 && others + self.bytes + more > self.pool.part {
                return false;
            }
            used.by_token[token] += more;
        }
        used.all += more;
        self.bytes += more;
        true
    }

    /// Waits for room for `bytes`. Until there is as much, nothing is taken from others.
    pub(super) async fn wait(mut self, bytes: usize) -> Self {
        let pool_released = Arc::clone(&self.pool.released);
        loop {
            let mut released = std::pin::pin!(pool_released.notified());
            // Before the look, so that no release falls between the two.
            released.as_mut().enable();
            if self.reserve(bytes) {
                return self;
            }
            released.await;
        }
    }

    /// Gives back what an answer of `bytes` does not need.
    pub(super) fn shrink(&mut self, bytes: usize) {
        self.shrink_to(shared(bytes));
    }

    /// Gives back what is more than `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) else { return };
        let mut used = self.pool.used();
        used.all -= less;
        if let Some(token) = self.token {
            used.by_token[token] -= less;
        }
        drop(used);
        self.bytes = bytes;
        self.pool.released.notify_waiters();
    }
}

impl Drop for AnswerShare {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// What of `bytes` counts as large.
fn shared(bytes: usize) -> usize {
    if bytes <= UNSHARED_BYTES_MAX { 0 } else { bytes }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::auth::{Role, Token};

    fn memory(names: &[&str]) -> (AnswerMemory, Tokens) {
        let token = |name: &&str| Token::new(name, name, &[Role::Consume], &["t*"]);
        let tokens = Tokens::new(names.iter().map(token).collect());
        (AnswerMemory::new(100 << 10, &tokens), tokens)
    }

    #[tokio::test]
    async fn a_share_is_of_large_answers_and_the_largest_has_all() {
        let (memory, _) = memory(&[]);
        let share = || memory.share(&Caller::anyone());
        let mut small = share();
        assert!(small.grow(UNSHARED_BYTES_MAX) && small.bytes() == 0);
        assert!(small.grow(40 << 10) && small.grow(60 << 10));
        assert_eq!(memory.free(), 40 << 10);
        let mut other = share();
        assert!(!other.grow(1 << 30) && other.bytes() == 0, "a refused share holds nothing");
        assert!(other.grow(40 << 10));
        small.shrink(30 << 10);
        assert_eq!(memory.free(), 30 << 10);
        drop((small, other));
        let all = share().wait(1 << 30).await;
        assert_eq!(memory.free(), 0);
        drop(all);
        assert_eq!(memory.free(), 100 << 10);
    }

    #[tokio::test]
    async fn who_waits_for_room_takes_none_from_others() {
        let (memory, _) = memory(&[]);
        let share = || memory.share(&Caller::anyone());
        let held = share().wait(60 << 10).await;
        let mut waits = std::pin::pin!(share().wait(80 << 10));
        assert!(waits.as_mut().now_or_never().is_none());
        let mut other = share();
        assert!(other.grow(40 << 10), "what is free is for all who need no more");
        drop(other);
        assert!(waits.as_mut().now_or_never().is_none());
        drop(held);
        assert_eq!(waits.await.bytes(), 80 << 10);
    }

    #[tokio::test]
    async fn results_have_memory_of_their_own_and_then_that_of_large_answers() {
        const HALF: usize = RESERVE_BYTES / 2;
        let memory = AnswerMemory::new(RESERVE_BYTES, &Tokens::new(Vec::new()));
        let anyone = Caller::anyone();
        let (receipts, batch) = (|| memory.receipts_share(&anyone), || memory.batch_share(&anyone));
        let mut large = memory.share(&anyone);
        assert!(large.grow(RESERVE_BYTES));
        let (mut first, mut second, mut third) = (receipts(), receipts(), receipts());
        assert!(first.grow(HALF) && second.grow(HALF), "large answers that nobody reads leave room");
        assert!(!third.grow(HALF), "all of it is taken");
        let mut result = batch();
        assert!(result.grow(RESERVE_BYTES) && !batch().grow(HALF), "that of batches is another");
        let mut waits = std::pin::pin!(batch().wait(HALF));
        assert!(waits.as_mut().now_or_never().is_none());
        large.shrink_to(HALF);
        assert!(third.grow(HALF) && waits.as_mut().now_or_never().is_none());
        drop(third);
        let other = waits.await;
        assert_eq!((other.bytes(), memory.free()), (HALF, 0));
        drop((other, large));
        assert_eq!(memory.free(), RESERVE_BYTES, "each is given back where it was taken");
    }

    #[test]
    fn a_token_for_some_topics_has_its_part_or_one_answer() {
        let (memory, tokens) = memory(&["a", "b", "c"]);
        let share = |name: &str| memory.share(&tokens.caller(name).unwrap());
        let (mut first, mut second, mut third) = (share("a"), share("a"), share("a"));
        assert_eq!(first.bytes_max(), 25 << 10);
        assert!(first.grow(20 << 10) && !second.grow(20 << 10), "its part is 25 KB");
        assert!(share("b").grow(20 << 10) && memory.share(&Caller::anyone()).grow(70 << 10));
        drop(first);
        assert!(second.grow(60 << 10) && !third.grow(17 << 10), "one answer may be larger than a part");
        assert!(
            share("b").grow(40 << 10) && !share("b").grow(41 << 10),
            "and all together have no more than all"
        );
    }
}
