//! Limits of messages.

use std::time::Duration;

/// The limits of a Duly. Each has its own error code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one body.
    pub body_bytes_max: usize,
    /// Properties of one message.
    pub properties_max: usize,
    /// Messages of one batch.
    pub batch_max: usize,
    /// How far ahead a due time may lie.
    pub delay_max: Duration,
    /// Messages waiting at the same time.
    pub pending_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            properties_max: 64,
            batch_max: 10_000,
            delay_max: Duration::from_secs(3653 * 86_400),
            pending_max: 1_000_000_000,
        }
    }
}
