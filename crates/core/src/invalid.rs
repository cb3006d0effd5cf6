//! Bad input, said so that a person can mend it.

use crate::ErrorCode;

/// A value that Duly does not take: a stable code, where it stands, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {detail} [{code}]")]
#[non_exhaustive]
pub struct Invalid {
    /// Stable, for programs.
    pub code: ErrorCode,
    /// Where in the input the fault is, e.g. `properties.tenant`.
    pub path: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

impl Invalid {
    /// A property that the sink cannot carry.
    pub fn property(name: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadProperty, format!("properties.{name}"), detail)
    }

    /// A fault of `code` at `path`.
    pub fn new(code: ErrorCode, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { code, path: path.into(), detail: detail.into() }
    }
}
