//! The memory for request bodies that are being read or worked on, over all connections.

use std::sync::Arc;

use duly::{ErrorCode, Limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    body::request_max,
    fault::{ApiResult, Fault},
};

/// Memory for bodies of all requests, unless the largest allowed body needs more.
const BODY_MEMORY_MIN: usize = 128 << 20;
/// A body up to this size needs no share of the memory set aside for bodies.
const UNSHARED_BYTES_MAX: usize = 16 << 10;
/// Memory for bodies of acks, nacks and extends alone, so that large messages which arrive slowly keep nobody from settling others.
const RECEIPTS_MEMORY: usize = 16 << 20;
/// The largest body of those that is kept there: 1,000 receipts of the greatest length, and more.
const RECEIPTS_BODY_MAX: usize = 256 << 10;

/// The memory for bodies.
pub(super) struct BodyMemory {
    all: Arc<Semaphore>,
    receipts: Arc<Semaphore>,
}

impl BodyMemory {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            all: Arc::new(Semaphore::new(bytes(limits))),
            receipts: Arc::new(Semaphore::new(RECEIPTS_MEMORY)),
        }
    }

    /// A share with nothing in it.
    pub(super) fn share(&self) -> Share {
        Share { memory: Arc::clone(&self.all), own: None, permit: None }
    }

    /// The same for receipts: of their own memory, or of that for all.
    pub(super) fn receipts_share(&self) -> Share {
        Share { own: Some(Arc::clone(&self.receipts)), ..self.share() }
    }
}

/// Bytes of large request bodies in memory over all connections. The largest allowed one fits more than once.
fn bytes(limits: &Limits) -> usize {
    request_max(limits).saturating_mul(2).clamp(BODY_MEMORY_MIN, Semaphore::MAX_PERMITS)
}

/// A share of the [`BodyMemory`], released on drop. Small bodies need none.
pub(super) struct Share {
    memory: Arc<Semaphore>,
    /// Where it is taken from as long as the body is small enough.
    own: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Grows the share to a body of `bytes`.
    pub(super) fn grow(&mut self, bytes: usize) -> ApiResult<()> {
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes <= UNSHARED_BYTES_MAX || bytes <= held {
            return Ok(());
        }
        if let Some(own) = &self.own {
            if bytes <= RECEIPTS_BODY_MAX
                && let Some(more) = taken(own, bytes - held)
            {
                self.add(more);
                return Ok(());
            }
            let all = taken(&self.memory, bytes).ok_or_else(busy)?;
            (self.own, self.permit) = (None, Some(all));
            return Ok(());
        }
        let more = taken(&self.memory, bytes - held).ok_or_else(busy)?;
        self.add(more);
        Ok(())
    }

    fn add(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(held) => held.merge(more),
            None => self.permit = Some(more),
        }
    }

    /// Shrinks the share to a body of `bytes`, and returns the rest.
    pub(super) fn split(&mut self, bytes: usize) -> Self {
        let keep = if bytes <= UNSHARED_BYTES_MAX { 0 } else { bytes };
        let rest = |held: &mut OwnedSemaphorePermit| held.split(held.num_permits().saturating_sub(keep));
        let permit = self.permit.as_mut().and_then(rest);
        Self { memory: Arc::clone(&self.memory), own: self.own.clone(), permit }
    }
}

fn taken(memory: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(memory).try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX)).ok()
}

fn busy() -> Fault {
    Fault::new(ErrorCode::Busy, "many large bodies are in memory at once; try again in a second")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_body_fits_into_the_room_for_bodies() {
        for body_bytes_max in [1, 1 << 20, 32 << 20, usize::MAX] {
            let limits = Limits { body_bytes_max, ..Limits::default() };
            assert!(bytes(&limits) >= request_max(&limits).min(Semaphore::MAX_PERMITS), "{body_bytes_max}");
        }
    }

    #[test]
    fn receipts_have_room_when_other_bodies_hold_all_of_theirs() {
        let memory = BodyMemory::new(&Limits::default());
        let (mut large, mut receipts) = (memory.share(), memory.receipts_share());
        large.grow(bytes(&Limits::default())).unwrap();
        assert!(memory.share().grow(UNSHARED_BYTES_MAX + 1).is_err());
        receipts.grow(UNSHARED_BYTES_MAX + 1).unwrap();
        receipts.grow(RECEIPTS_BODY_MAX).unwrap();
        assert_eq!(memory.receipts.available_permits(), RECEIPTS_MEMORY - RECEIPTS_BODY_MAX);
        assert!(receipts.grow(RECEIPTS_BODY_MAX + 1).is_err(), "that is no body of receipts");
        let rest = large.split(0);
        drop(large);
        drop(rest);
        receipts.grow(RECEIPTS_BODY_MAX + 1).unwrap();
        assert_eq!(memory.receipts.available_permits(), RECEIPTS_MEMORY);
        assert_eq!(memory.all.available_permits(), bytes(&Limits::default()) - RECEIPTS_BODY_MAX - 1);
    }

    #[test]
    fn receipts_beyond_their_own_memory_use_that_of_all() {
        let memory = BodyMemory::new(&Limits::default());
        let share = || {
            let mut share = memory.receipts_share();
            share.grow(RECEIPTS_BODY_MAX).map(|()| share)
        };
        let shares: Vec<_> = (0..=RECEIPTS_MEMORY / RECEIPTS_BODY_MAX).map(|_| share().ok()).collect();
        assert!(shares.iter().all(Option::is_some));
        assert_eq!(memory.all.available_permits(), bytes(&Limits::default()) - RECEIPTS_BODY_MAX);
    }
}
