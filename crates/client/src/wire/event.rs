//! Events of `GET /v1/events`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Alert;

/// Interval of the comments that the server sends while there are no events.
pub const EVENTS_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One event.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of the messages")]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub enum Event {
    /// A message was accepted.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Accepted { id: String, lane: String, deliver_at: String, deliver_at_ms: u64 },
    /// A message was delivered.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Delivered { id: String, lane: String, attempt: u32, lateness_ms: f64 },
    /// An attempt failed; there will be another.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Failed {
        id: String,
        lane: String,
        attempt: u32,
        outcome: String,
        detail: String,
        retry_at: String,
        retry_at_ms: u64,
    },
    /// A message was given up.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Dead { id: String, lane: String, reason: String },
    /// A message was cancelled.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Cancelled { id: String, lane: String },
    /// A message has another due time.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Rescheduled { id: String, lane: String, deliver_at: String, deliver_at_ms: u64 },
    /// A dead letter is pending again, due now.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Replayed { id: String, lane: String },
    /// A dead letter was forgotten for good.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Purged { id: String, lane: String },
    /// An operator paused a lane.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Paused { lane: String },
    /// An operator resumed a lane.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Resumed { lane: String },
    /// The sink of a lane is unreachable; its messages wait.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    SinkUnreachable { lane: String, detail: String },
    /// The sink of a lane is reachable again.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    SinkRecovered { lane: String },
    /// A destination inside the target of a lane is silent, full or forbidden: its messages wait, the others go on.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    DestinationUnreachable { lane: String, destination: String, detail: String },
    /// A destination takes messages again.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    DestinationRecovered { lane: String, destination: String },
    /// Leases ended while messages were being worked on: they come again.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    LeasesLost { count: u64 },
    /// The store failed and is tried again.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    StoreFailing { times: u32 },
    /// Wall time stepped; negative: backwards.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    ClockJumped { by_us: i64 },
    /// An alert was raised or cleared.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Alert { alert: Box<Alert> },
    /// This follower was too slow for so many events.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Missed { count: u64 },
    /// Something else.
    #[cfg_attr(not(feature = "server"), non_exhaustive)]
    Other { what: String },
}

impl Event {
    /// Every word that [`kind`](Self::kind) gives.
    pub const KINDS: [&str; 20] = [
        "accepted",
        "delivered",
        "failed",
        "dead",
        "cancelled",
        "rescheduled",
        "replayed",
        "purged",
        "paused",
        "resumed",
        "sink_unreachable",
        "sink_recovered",
        "destination_unreachable",
        "destination_recovered",
        "leases_lost",
        "store_failing",
        "clock_jumped",
        "alert",
        "missed",
        "other",
    ];

    /// The word in `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Delivered { .. } => "delivered",
            Self::Failed { .. } => "failed",
            Self::Dead { .. } => "dead",
            Self::Cancelled { .. } => "cancelled",
            Self::Rescheduled { .. } => "rescheduled",
            Self::Replayed { .. } => "replayed",
            Self::Purged { .. } => "purged",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::SinkUnreachable { .. } => "sink_unreachable",
            Self::SinkRecovered { .. } => "sink_recovered",
            Self::DestinationUnreachable { .. } => "destination_unreachable",
            Self::DestinationRecovered { .. } => "destination_recovered",
            Self::LeasesLost { .. } => "leases_lost",
            Self::StoreFailing { .. } => "store_failing",
            Self::ClockJumped { .. } => "clock_jumped",
            Self::Alert { .. } => "alert",
            Self::Missed { .. } => "missed",
            Self::Other { .. } => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_events_can_be_asked_for() {
        let error = serde_json::from_str::<Event>(r#"{"type":"?"}"#).unwrap_err().to_string();
        let mut known: Vec<_> = error.split('`').skip(3).step_by(2).collect();
        let mut kinds = Event::KINDS.to_vec();
        known.sort_unstable();
        kinds.sort_unstable();
        assert_eq!(known, kinds);
    }
}
