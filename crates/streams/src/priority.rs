//! Priorities.

use serde::Deserialize;

/// The priority of a message. Each priority has a stream of its own. Listeners read urgent streams first, and some of
/// their reads begin with a less urgent one, so that nothing starves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Priority {
    /// Read first.
    High,
    /// The stream with the name of the topic.
    #[default]
    Normal,
    /// Read last.
    Low,
}

impl Priority {
    /// Most urgent first.
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}
