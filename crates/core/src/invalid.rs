//! Validation errors.

use crate::ErrorCode;

/// A value that Duly refuses: a stable code, its place in the input, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {detail} [{code}]")]
#[non_exhaustive]
pub struct Invalid {
    /// Stable, for programs.
    pub code: ErrorCode,
    /// The place in the input, e.g. `properties.tenant`.
    pub path: String,
    /// What is wrong, and what would be valid.
    pub detail: String,
}

impl Invalid {
    /// A property that the sink cannot carry.
    pub fn property(name: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadProperty, format!("properties.{name}"), detail)
    }

    /// An error of `code` at `path`.
    pub fn new(code: ErrorCode, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { code, path: path.into(), detail: detail.into() }
    }
}
