//! The guard of an acquired lock.

use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::{claim::LockClaim, lease::Lease};
use crate::{Error, clock};

/// The state of an acquired lock.
#[derive(Debug, Clone, Copy)]
enum HoldState {
    /// It is held until this lease ends.
    Held(Lease),
    /// Another holder may have it. This is final.
    Lost,
}

/// The result of releasing a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// It was held until now, and is free.
    Done,
    /// It was lost before: its lease had ended, and another holder may have it. On a Cluster also if the release was
    /// done, its reply lost, and the call repeated.
    Lost,
}

/// An acquired lock, renewed while the guard exists.
///
/// Dropping it releases the lock in the background; [`release`](Self::release) waits for that.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard {
    name: String,
    token: u64,
    state: watch::Receiver<HoldState>,
    /// Ends the renewal. Dropping it releases the lock, too.
    end: Option<oneshot::Sender<oneshot::Sender<Result<Released, Error>>>>,
}

impl LockGuard {
    pub(super) fn new(claim: LockClaim, token: u64, lease: Lease) -> Self {
        let (state_tx, state) = watch::channel(HoldState::Held(lease));
        let (end, ended) = oneshot::channel();
        let name = claim.name().to_owned();
        tokio::spawn(renew_until_released(claim, token, lease, state_tx, ended));
        Self { name, token, state, end: Some(end) }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fencing token: greater than that of every earlier holder. Pass it to the protected resource, and let that
    /// refuse smaller tokens than it has seen.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether the lock is certainly held now. Once false, it stays false.
    ///
    /// It may be lost a moment later, if this process is paused just then: that is what the [token](Self::token) is
    /// for.
    pub fn is_held(&self) -> bool {
        match *self.state.borrow() {
            HoldState::Held(lease) => !lease.left_now().is_zero(),
            HoldState::Lost => false,
        }
    }

    /// Waits until the lock is no longer certainly held. For `tokio::select!` beside the work.
    ///
    /// Cancel safety: it may be dropped and called again at any time.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        loop {
            let left = match *state.borrow_and_update() {
                HoldState::Held(lease) => lease.left_now(),
                HoldState::Lost => Duration::ZERO,
            };
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = clock::sleep(left) => {}
                changed = state.changed() => if changed.is_err() {
                    // The renewal has ended, and the lease runs out.
                    clock::sleep(left).await;
                }
            }
        }
    }

    /// Releases the lock, and says whether it was still held.
    ///
    /// Cancel safety: dropped midway, the lock is released all the same, in the background.
    pub async fn release(mut self) -> Result<Released, Error> {
        let (answer, answered) = oneshot::channel();
        if let Some(end) = self.end.take() {
            let _ = end.send(answer);
        }
        let runtime_ended =
            || Error::unanswered("the runtime that renewed the lock has ended; its lease ends, too");
        answered.await.unwrap_or_else(|_| Err(runtime_ended()))
    }
}

/// Renews a lock until its guard is dropped or released, then releases it.
async fn renew_until_released(
    claim: LockClaim,
    token: u64,
    lease: Lease,
    state_tx: watch::Sender<HoldState>,
    mut ended: oneshot::Receiver<oneshot::Sender<Result<Released, Error>>>,
) {
    let asked = tokio::select! {
        biased;
        asked = &mut ended => asked,
        why = renew(&claim, token, lease, &state_tx) => {
            tracing::warn!(lock = claim.name(), token, why, "lock lost");
            state_tx.send_replace(HoldState::Lost);
            ended.await
        }
    };
    match asked {
        Ok(answer) => {
            let released = claim.release().await;
            if released.is_err() {
                claim.release_in_background();
            }
            let outcome = |ours| if ours { Released::Done } else { Released::Lost };
            let _ = answer.send(released.map(outcome));
        }
        Err(_) => claim.release_in_background(),
    }
}

/// Renews until that failed for so long that another holder may have the lock. Returns the reason.
async fn renew(
    claim: &LockClaim,
    token: u64,
    mut lease: Lease,
    state_tx: &watch::Sender<HoldState>,
) -> String {
    let mut wait = claim.span() / 3;
    loop {
        clock::sleep(wait.min(lease.left_now())).await;
        let left = lease.left_now();
        if left.is_zero() {
            return "it could not be renewed in time".into();
        }
        match tokio::time::timeout(left, claim.renew(token)).await {
            // This process may have been paused since, and somebody may have seen that the lock was not held.
            Ok(Ok(Some(_))) if lease.left_now().is_zero() => {
                return "the renewal was answered too late".into();
            }
            Ok(Ok(Some(next))) => {
                lease = next;
                wait = claim.span() / 3;
                state_tx.send_replace(HoldState::Held(lease));
            }
            Ok(Ok(None)) => return "Redis does not know it, or another holder has it".into(),
            Ok(Err(error)) => {
                tracing::debug!(lock = claim.name(), %error, "lock renewal failed");
                wait = claim.span() / 10;
            }
            Err(_) => return "Redis did not answer in time".into(),
        }
    }
}
