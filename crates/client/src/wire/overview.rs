//! Looking at the whole: queues, sinks, totals, health.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Message;

/// A page of messages.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Page {
    /// By due time; bodies are left out.
    pub messages: Vec<Message>,
    /// Ask with this `cursor` for the next page; none: this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The topics of the built-in queue.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct QueuesAnswer {
    /// By topic.
    pub queues: Vec<Queue>,
    /// Ask with this `cursor` for the next page; none: this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// One topic of the built-in queue.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Queue {
    /// Its topic.
    pub topic: String,
    /// Paused by an operator.
    pub paused: bool,
    /// Waiting, due or not.
    pub pending: u64,
    /// Waiting and due.
    pub ready: u64,
    /// In receivers' hands.
    pub leased: u64,
    /// Given up.
    pub dead: u64,
    /// How long the oldest due message has waited, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_overdue_ms: Option<u64>,
}

/// The configured sinks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct SinksAnswer {
    /// By name.
    pub sinks: Vec<Sink>,
}

/// One sink.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Sink {
    /// The name that messages give.
    pub name: String,
    /// What it is: `webhook` … ; `orphan`: messages wait for it, but it left the configuration.
    pub kind: String,
    /// `reachable`, `unreachable`, `half_open` (being probed), `paused` or `orphan`.
    pub state: String,
    /// What the target said when it was last away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Destinations inside the target (topics, queues, URL origins) that are silent, full or forbidden, as this node sees it.
    #[serde(default)]
    pub destinations_unreachable: u64,
    /// Paused by an operator.
    pub paused: bool,
    /// Waiting, due or not.
    pub pending: u64,
    /// Waiting and due.
    pub ready: u64,
    /// Claimed and not yet settled.
    pub in_flight: u64,
    /// Given up.
    pub dead: u64,
    /// How long the oldest due message has waited, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_overdue_ms: Option<u64>,
    /// Messages per second at most, if limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<f64>,
    /// Delivered per second over the last ten seconds.
    pub delivered_per_second: f64,
}

/// Totals, rates and lateness.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Stats {
    /// The totals since the store was made.
    pub totals: TotalsAnswer,
    /// Accepted per second over the last ten seconds.
    pub accepted_per_second: f64,
    /// Delivered per second over the last ten seconds.
    pub delivered_per_second: f64,
    /// Attempts of this process that failed and are followed by another.
    pub failed: u64,
    /// Submits that this process knew already.
    pub duplicates: u64,
    /// How late attempts of this process began.
    pub lateness: Lateness,
    /// Alerts that are on now.
    pub alerts: Vec<Alert>,
    /// How long this process has run, in milliseconds.
    pub uptime_ms: u64,
    /// Its version.
    pub version: String,
    /// Whether the token is for some topics only: then the totals are what is pending, in flight and dead in these topics of the built-in
    /// queue, and what is counted over all topics is 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
}

/// accepted = pending + in_flight + delivered + cancelled + dead + purged, always.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct TotalsAnswer {
    /// Taken, duplicates aside.
    pub accepted: u64,
    /// Waiting now.
    pub pending: u64,
    /// Claimed now.
    pub in_flight: u64,
    /// Ever delivered.
    pub delivered: u64,
    /// Ever cancelled.
    pub cancelled: u64,
    /// Dead letters now.
    pub dead: u64,
    /// Dead letters ever purged.
    pub purged: u64,
    /// Whether the sum is right.
    pub balanced: bool,
}

impl From<&duly_core::store::Totals> for TotalsAnswer {
    fn from(totals: &duly_core::store::Totals) -> Self {
        Self {
            accepted: totals.accepted,
            pending: totals.pending,
            in_flight: totals.in_flight,
            delivered: totals.delivered,
            cancelled: totals.cancelled,
            dead: totals.dead,
            purged: totals.purged,
            balanced: totals.balance(),
        }
    }
}

/// How late attempts began, in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Lateness {
    /// Half of them, or better.
    pub p50_ms: f64,
    /// 99 of 100, or better.
    pub p99_ms: f64,
    /// 999 of 1,000, or better.
    pub p999_ms: f64,
    /// The worst.
    pub max_ms: f64,
    /// Of how many.
    pub count: u64,
}

/// Something an operator should know.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Alert {
    /// `overdue`, `queue_length`, `lateness_p99`, `failure_rate`, `dead_letters`, `orphan`, `ledger`, `not_ready` or `degraded`.
    pub name: String,
    /// The topic or sink it is about; none: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whether it is on.
    pub state: AlertState,
    /// What was measured, in words.
    pub detail: String,
    /// What was measured, in numbers.
    #[serde(default)]
    pub values: AlertValues,
    /// Since when.
    pub since: String,
}

/// What an alert measured. Its name says which of them there are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct AlertValues {
    /// `overdue`: the lane whose oldest due message has waited longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// `orphan`: the sink that is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// `queue_length`, `dead_letters`, `orphan`: how many messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// `queue_length`, `dead_letters`: how many are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// `overdue`: how long the oldest has waited; `lateness_p99`: within which 99 of 100 attempts began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_ms: Option<u64>,
    /// `overdue`, `lateness_p99`: how long is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<u64>,
    /// `lateness_p99`, `failure_rate`: attempts of the last minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// `failure_rate`: those of them that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// `failure_rate`: which share of them may, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_rate: Option<f64>,
    /// `not_ready`: why, by part.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, String>,
    /// `degraded`: which messages wait, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// `ledger`: the totals that do not add up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TotalsAnswer>,
}

/// Whether an alert is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub enum AlertState {
    /// It is.
    Raised,
    /// It was.
    Cleared,
}

/// How many messages come due when.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Forecast {
    /// Equal parts of the span asked for.
    pub buckets: Vec<ForecastBucket>,
    /// Whether only some of the messages were counted: for a token for some topics, the first 10,000 of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// One part of the span.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct ForecastBucket {
    /// Where it begins.
    pub from: String,
    /// The same, in milliseconds since 1970.
    pub from_ms: u64,
    /// How many pending messages come due in it.
    pub count: u64,
}

/// The nodes on this store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct NodesAnswer {
    /// By name.
    pub nodes: Vec<Node>,
    /// The parts of the store, by number.
    #[serde(default)]
    pub shards: Vec<Shard>,
}

/// One part of the store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Shard {
    /// Its number, from 0.
    pub shard: u32,
    /// Who delivers what of it, by lane. Queues of a store that nodes share are left out: every node hands out of them.
    pub owners: Vec<ShardOwner>,
    /// For how long the oldest message that could be delivered has waited; left out if none is late. Lanes that are paused do not
    /// count; of a database with more than 100 lanes in which something waits, lanes to sinks and the fullest queues do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
}

/// Who delivers a lane of a shard.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct ShardOwner {
    /// The lane.
    pub lane: String,
    /// The node's name.
    pub node: String,
}

/// One node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether it is the one that answers.
    pub this: bool,
    /// Whether it delivers, or only accepts.
    pub delivers: bool,
    /// The lanes it serves.
    pub lanes: Vec<String>,
    /// The shards it owns.
    pub shards: u32,
    /// How far its clock is from the store's, in milliseconds.
    pub clock_skew_ms: f64,
    /// Its version.
    pub version: String,
}

/// The named delays.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct LevelsAnswer {
    /// By name.
    pub levels: Vec<Level>,
    /// What an unknown level means; none: it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// One named delay.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Level {
    /// Its name.
    pub name: String,
    /// Its time, in words.
    pub delay: String,
    /// The same, in milliseconds.
    pub delay_ms: u64,
}

/// Whether this node could accept and deliver a message now.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Ready {
    /// Whether it can.
    pub ready: bool,
    /// Per part: `ok`, or what is wrong; to callers without a token that sees all topics, `failing`. `accepting`, `claiming` and
    /// `background` are parts of the store, and `store` is the first of them that fails; `driver` is what delivers, `server` this process.
    /// `degraded`, if it is there, says which messages wait while all others go on: the node is ready all the same.
    pub parts: BTreeMap<String, String>,
    /// What an accepted message survives.
    pub durability: String,
    /// Lanes whose sink left the configuration: their messages wait. Told to callers with a token that sees all topics.
    pub orphans: Vec<OrphanLane>,
    /// What an operator should mend although messages are accepted and delivered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Messages that wait for a sink which is not configured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct OrphanLane {
    /// The sink.
    pub sink: String,
    /// How many wait.
    pub pending: u64,
}

/// Who the caller is to this server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct WhoAnswer {
    /// Whether the server knows them: always, where it asks for no token.
    pub known: bool,
    /// Whether the server asks for a token.
    pub tokens: bool,
    /// The name of their token; `anyone` where none is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What they may do: any of `produce`, `consume`, `read`, `operate` and `admin`, which is everything.
    pub roles: Vec<String>,
    /// For which topics: patterns with `*`. Empty: all.
    pub topics: Vec<String>,
    /// Which ids they may choose: patterns with `*`, as the token has them. Empty: any, or with topics those that follow from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
}
