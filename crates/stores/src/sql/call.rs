//! Pieces of work that are done once, though they may be tried more often: the answer to a commit can get lost.
//!
//! Whatever a piece of work changes, it counts, and with the counters it writes its own number into a row that only it
//! writes to at that time. If nobody answers the commit, that row shows whether it was committed: it is locked for as long as the
//! first try may still be committed, however slow the server is, so a reader of it waits until that is decided.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use super::{
    SqlStore,
    connection::{Session, Statement},
    count::CALLS,
    fault::Fault,
};

/// Numbers of calls, no two alike, of whichever process; and the fencing tokens that they give.
#[derive(Debug)]
pub(super) struct Calls {
    last: AtomicI64,
    last_token: AtomicU64,
    slots: Mutex<SlotPool>,
}

/// Rows of this process in which calls write their numbers.
#[derive(Debug, Default)]
struct SlotPool {
    free: Vec<i64>,
    made: i64,
}

impl Calls {
    pub(super) fn new(instance: u64) -> Self {
        // Where another process begins is so far away that it is not reached, and if it were, no call would meet another.
        let first = ((instance & 0x3f_ffff_ffff) << 25) as i64 + 1;
        Self { last: AtomicI64::new(first), last_token: AtomicU64::default(), slots: Mutex::default() }
    }

    pub(super) fn next(&self) -> i64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// The next fencing token: they grow with the time of the store, and from call to call.
    pub(super) fn next_token(&self, tick: u64) -> u64 {
        let next = |last: u64| tick.max(last + 1);
        let last =
            self.last_token.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(last.unwrap_or_default())
    }

    /// Begins a call. There are as many slots as calls at work at the same time.
    pub(super) fn begin(&self) -> CallGuard<'_> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.made += 1;
            slots.made - 1
        });
        CallGuard { calls: self, name: CallId { number: self.next(), slot } }
    }
}

/// A call that is at work. Its slot is free again when it is dropped.
#[derive(Debug)]
pub(super) struct CallGuard<'c> {
    calls: &'c Calls,
    name: CallId,
}

/// What a call is known by, and where it writes that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallId {
    pub(super) number: i64,
    pub(super) slot: i64,
}

impl CallGuard<'_> {
    pub(super) fn name(&self) -> CallId {
        self.name
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut slots = self.calls.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.free.push(self.name.slot);
    }
}

impl SqlStore {
    /// Whether what this call did before was committed. Waits for that to be decided.
    pub(super) async fn was_done(&self, session: &mut Session, call: CallId) -> Result<bool, Fault> {
        let me = self.options.instance as i64;
        // A row that an earlier try put there and has not committed is not to be seen, but putting it there waits for it.
        let mut put = Statement::new(self.dialect(), "INSERT INTO duly_count (kind, what, slot, n) VALUES (");
        put.bind_all([CALLS, me, call.slot, 0]).push(")");
        put.push_as(
            " ON DUPLICATE KEY UPDATE n = n",
            " ON CONFLICT (kind, what, slot) DO UPDATE SET n = duly_count.n",
        );
        session.run(put).await?;
        let mut select = Statement::new(self.dialect(), "SELECT n FROM duly_count WHERE kind = ");
        select.bind(CALLS).push(" AND what = ").bind(me).push(" AND slot = ").bind(call.slot);
        let last = session.rows(select).await?.first().map(|row| row.int(0)).transpose()?;
        Ok(last == Some(call.number))
    }

    /// Forgets the calls of processes that are not there any more. Should one be, it does what it does not know of again, and
    /// finds that done.
    pub(super) async fn forget_calls(&self, session: &mut Session, instances: &[i64]) -> Result<(), Fault> {
        let mut delete = Statement::new(self.dialect(), "DELETE FROM duly_count WHERE kind = ");
        delete.bind(CALLS).push(" AND what IN (").bind_all(instances.iter().copied()).push(")");
        session.run(delete).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_at_the_same_time_have_slots_of_their_own_and_slots_are_used_again() {
        let calls = Calls::new(7);
        let (one, two) = (calls.begin(), calls.begin());
        assert_eq!((one.name().slot, two.name().slot), (0, 1));
        let number = one.name().number;
        drop(one);
        let three = calls.begin();
        assert_eq!(three.name().slot, 0);
        assert!(three.name().number > two.name().number && two.name().number > number);
    }

    #[test]
    fn numbers_of_two_processes_are_far_apart_and_never_negative() {
        let (one, other) = (Calls::new(1).next(), Calls::new(2).next());
        assert!(one.abs_diff(other) >= 1 << 25);
        assert!(Calls::new(u64::MAX).next() > 0);
    }
}
