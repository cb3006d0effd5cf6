//! What went wrong, for programs and for people.

use serde::{Deserialize, Serialize};

/// An error, RFC 9457 (`application/problem+json`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Problem {
    /// Where the code is explained.
    #[serde(rename = "type")]
    pub about: String,
    /// What kind of problem, in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Stable, for programs.
    pub code: String,
    /// What happened, to what, and what to do now.
    pub detail: String,
    /// Where in the input the fault is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Where the message stands, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// Why one item of a batch was not taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct ItemError {
    /// Stable, for programs.
    pub code: String,
    /// What happened, to what, and what to do now.
    pub detail: String,
    /// Where in the item the fault is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}
