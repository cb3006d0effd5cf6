//! The same change for many messages.

use serde::{Deserialize, Serialize};

use super::{Delay, Moment, object::objects_only};

objects_only!(BulkRequest, MovedRequest, Filter);

/// Which messages: `ids`, or a `filter`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct BulkRequest {
    /// These.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// All that match. An empty filter means all: say so with `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Only count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// With a filter: only what was accepted by then, of dead letters what had died by then. A dry run says when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Moment>,
    /// With a filter: at most so many, as the dry run answered.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::number::whole")]
    pub matched: Option<u64>,
}

/// Which messages, and their new due time: `delay` or `deliver_at`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct MovedRequest {
    /// These.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// All that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Only count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// With a filter: only what was accepted by then. A dry run says when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Moment>,
    /// With a filter: at most so many, as the dry run answered.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::number::whole")]
    pub matched: Option<u64>,
    /// Due this long from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// Due at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<Moment>,
}

/// Every part must match.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Filter {
    /// This sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// This topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Due at or after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_from: Option<Moment>,
    /// Due before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_to: Option<Moment>,
}

/// What became of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct BulkAnswer {
    /// How many matched.
    pub matched: u64,
    /// How many were changed.
    pub done: u64,
    /// How many were in a state that does not allow it.
    pub too_late: u64,
    /// How many were cancelled before, and now again: nothing was changed, and they are not too late.
    #[serde(default)]
    pub already: u64,
    /// How many ids are unknown.
    pub unknown: u64,
    /// Of those changed, how many may have arrived by an earlier attempt.
    pub maybe_delivered: u64,
    /// Nothing was changed, only counted.
    pub dry_run: bool,
    /// The instant that a filter was applied for: what came later is not among those that matched. Sent back with `matched`, the
    /// real call changes no more than the dry run counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// There are more that match than the `matched` of the request allows.
    #[serde(default)]
    pub more: bool,
}
