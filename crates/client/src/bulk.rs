//! The same change for many messages.

use std::time::Duration;

use crate::{
    Client, Error,
    wire::{BulkAnswer, BulkRequest, MovedRequest},
};

/// How long one call may take: a store may have to look at everything to count what matches.
const LONG: Duration = Duration::from_secs(3600);

impl Client {
    /// Cancels all of these that are not delivered yet.
    ///
    /// Cancel safety: dropped midway, some, all or none of them may be changed.
    pub async fn cancel_many(&self, which: &BulkRequest) -> Result<BulkAnswer, Error> {
        self.post_and_wait("/v1/messages/cancel", which, LONG).await
    }

    /// Gives all of these another due time.
    ///
    /// Cancel safety: dropped midway, some, all or none of them may be changed.
    pub async fn reschedule_many(&self, which: &MovedRequest) -> Result<BulkAnswer, Error> {
        self.post_and_wait("/v1/messages/reschedule", which, LONG).await
    }

    /// Delivers all of these now.
    ///
    /// Cancel safety: dropped midway, some, all or none of them may be changed.
    pub async fn fire_many(&self, which: &BulkRequest) -> Result<BulkAnswer, Error> {
        self.post_and_wait("/v1/messages/fire", which, LONG).await
    }

    /// Sends these dead letters again: they are due now, and their attempts begin afresh.
    ///
    /// Cancel safety: dropped midway, some, all or none of them may be changed.
    pub async fn replay(&self, which: &BulkRequest) -> Result<BulkAnswer, Error> {
        self.post_and_wait("/v1/dead/replay", which, LONG).await
    }

    /// Forgets these dead letters for good.
    ///
    /// Cancel safety: dropped midway, some, all or none of them may be changed.
    pub async fn purge(&self, which: &BulkRequest) -> Result<BulkAnswer, Error> {
        self.post_and_wait("/v1/dead/purge", which, LONG).await
    }
}
