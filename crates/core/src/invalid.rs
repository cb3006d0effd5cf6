//! Bad input, said so that a person can mend it.

/// A value that Duly does not take: a stable code, where it stands, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {detail} [{code}]")]
pub struct Invalid {
    /// Stable, for programs: `bad_id`, `bad_time`, `body_too_large` …
    pub code: &'static str,
    /// Where in the input the fault is, e.g. `properties.tenant`.
    pub path: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

impl Invalid {
    /// A property that the sink cannot carry.
    pub fn property(name: &str, detail: impl Into<String>) -> Self {
        Self::new("bad_property", format!("properties.{name}"), detail)
    }

    /// A fault of `code` at `path`.
    pub fn new(code: &'static str, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { code, path: path.into(), detail: detail.into() }
    }
}
