//! Whether a store can do its work.

use crate::store::StoreError;

/// Whether a store can do its work now, by part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// New messages are taken. More of them than allowed ([`TooMany`](crate::store::StoreErrorKind::TooMany)) is no failure.
    pub accepting: Result<(), StoreError>,
    /// What is due is given out, and what became of it recorded.
    pub claiming: Result<(), StoreError>,
    /// What the store does beside the calls goes on: a thread of it that died does nothing any more.
    pub background: Result<(), StoreError>,
    /// Why some of the stored messages wait while all others go on, such as a part of a disk that cannot be read. The store can do its
    /// work all the same.
    pub degraded: Option<StoreError>,
}

impl Health {
    /// All is well.
    pub const fn good() -> Self {
        Self { accepting: Ok(()), claiming: Ok(()), background: Ok(()), degraded: None }
    }

    /// Nothing works, for one reason.
    pub fn failing(error: StoreError) -> Self {
        Self {
            accepting: Err(error.clone()),
            claiming: Err(error.clone()),
            background: Err(error),
            degraded: None,
        }
    }

    /// The first part that fails, if any.
    pub fn whole(&self) -> Result<(), StoreError> {
        self.accepting.clone().and_then(|()| self.claiming.clone()).and_then(|()| self.background.clone())
    }
}
