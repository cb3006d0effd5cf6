//! A lock that is held.

use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::{claim::Claim, lease::Lease};
use crate::{Error, clock};

/// What is known of a lock that was got.
#[derive(Debug, Clone, Copy)]
enum Holding {
    /// It is ours as long as this lasts.
    For(Lease),
    /// It may be another's. It never becomes ours again.
    Lost,
}

/// What became of a lock that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// It was ours to the end, and is free.
    Done,
    /// It was ours no longer: its lease had ended, and another may have had it meanwhile, or has it now and keeps it. On a cluster also if it was
    /// given back and the answer got lost: the question is then asked again.
    Lost,
}

/// A lock that was got, and is renewed as long as this lives.
///
/// Dropped, it is given back in the background. [`release`](Self::release) does so, too, and waits for it.
#[derive(Debug)]
#[must_use = "the lock is given back as soon as this is dropped"]
pub struct LockGuard {
    name: String,
    token: u64,
    holding: watch::Receiver<Holding>,
    /// Ends the renewing; dropped without a word, it gives the lock back all the same.
    end: Option<oneshot::Sender<oneshot::Sender<Result<Released, Error>>>>,
}

impl LockGuard {
    pub(super) fn new(claim: Claim, token: u64, lease: Lease) -> Self {
        let (tell, holding) = watch::channel(Holding::For(lease));
        let (end, ended) = oneshot::channel();
        let name = claim.name().to_owned();
        tokio::spawn(keep(claim, token, lease, tell, ended));
        Self { name, token, holding, end: Some(end) }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fencing token: greater than that of everybody who had this lock before. Hand it to what the lock protects, and let that refuse
    /// whatever comes with a smaller one than it has seen.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether the lock is certainly ours at this moment. Once it says no, it never says yes again.
    ///
    /// A moment later it may be otherwise, if this process is paused just then: that is what the [token](Self::token) is for.
    pub fn is_held(&self) -> bool {
        match *self.holding.borrow() {
            Holding::For(lease) => !lease.left_now().is_zero(),
            Holding::Lost => false,
        }
    }

    /// Returns as soon as the lock is no longer certainly ours; never, as long as it is renewed. For `tokio::select!` beside the work.
    ///
    /// Cancel safety: it may be dropped and called again at any time.
    pub async fn lost(&self) {
        let mut holding = self.holding.clone();
        loop {
            let left = match *holding.borrow_and_update() {
                Holding::For(lease) => lease.left_now(),
                Holding::Lost => Duration::ZERO,
            };
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = clock::sleep(left) => {}
                changed = holding.changed() => if changed.is_err() {
                    // Nobody renews any more; what there is runs out.
                    clock::sleep(left).await;
                }
            }
        }
    }

    /// Gives the lock back, if it is still ours, and says so.
    ///
    /// Cancel safety: dropped midway, the lock is given back all the same, in the background.
    pub async fn release(mut self) -> Result<Released, Error> {
        let (answer, answered) = oneshot::channel();
        if let Some(end) = self.end.take() {
            let _ = end.send(answer);
        }
        let gone = || Error::unanswered("the runtime that renewed the lock has ended; its lease ends, too");
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Renews a lock until its guard is gone, and gives it back then.
async fn keep(
    claim: Claim,
    token: u64,
    lease: Lease,
    tell: watch::Sender<Holding>,
    mut ended: oneshot::Receiver<oneshot::Sender<Result<Released, Error>>>,
) {
    let asked = tokio::select! {
        biased;
        asked = &mut ended => asked,
        why = renew(&claim, token, lease, &tell) => {
            tracing::warn!(lock = claim.name(), token, why, "lock lost");
            tell.send_replace(Holding::Lost);
            ended.await
        }
    };
    match asked {
        Ok(answer) => {
            let released = claim.release().await;
            if released.is_err() {
                claim.give_back();
            }
            let word = |ours| if ours { Released::Done } else { Released::Lost };
            let _ = answer.send(released.map(word));
        }
        Err(_) => claim.give_back(),
    }
}

/// Renews again and again, and returns when that failed for so long that the lock may be another's; says why.
async fn renew(claim: &Claim, token: u64, mut lease: Lease, tell: &watch::Sender<Holding>) -> String {
    let mut wait = claim.span() / 3;
    loop {
        clock::sleep(wait.min(lease.left_now())).await;
        let left = lease.left_now();
        if left.is_zero() {
            return "it could not be renewed in time".into();
        }
        match tokio::time::timeout(left, claim.renew(token)).await {
            // This process may have been paused since: then somebody may have seen that it was not held.
            Ok(Ok(Some(_))) if lease.left_now().is_zero() => {
                return "the renewal was heard of too late".into();
            }
            Ok(Ok(Some(next))) => {
                lease = next;
                wait = claim.span() / 3;
                tell.send_replace(Holding::For(lease));
            }
            Ok(Ok(None)) => return "Redis knows nothing of it, or that it is another's".into(),
            Ok(Err(error)) => {
                tracing::debug!(lock = claim.name(), %error, "lock renewal failed");
                wait = claim.span() / 10;
            }
            Err(_) => return "Redis did not answer in time".into(),
        }
    }
}
