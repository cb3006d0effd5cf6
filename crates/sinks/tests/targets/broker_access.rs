//! Cases that share a server which takes seconds to start, and the one among them that stops it.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How a case uses a server.
#[derive(Default)]
pub(crate) enum BrokerAccess {
    /// Not at all, at the moment.
    #[default]
    Not,
    /// While others may.
    WithOthers(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    /// While nobody else does.
    Alone(RwLockWriteGuard<'static, ()>),
}

impl BrokerAccess {
    /// Once nobody stops it.
    pub(crate) fn with_others(users: &'static RwLock<()>) -> Self {
        Self::WithOthers(users.blocking_read())
    }

    /// Once all others are done. Our own access ends first: whoever waits for all must not be one of them.
    pub(crate) async fn alone(self, users: &'static RwLock<()>) -> Self {
        match self {
            Self::Alone(alone) => Self::Alone(alone),
            others => {
                drop(others);
                Self::Alone(users.write().await)
            }
        }
    }
}
