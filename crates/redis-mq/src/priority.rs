//! What is more urgent.

use serde::Deserialize;

/// How urgent a message is. Each priority has a stream of its own beside that of the topic; listeners read the urgent ones first, and
/// of every few reads one begins with the least urgent, so that nothing waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Priority {
    /// Before all others.
    High,
    /// The stream that has the topic's name.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Priority {
    /// The most urgent first.
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}
