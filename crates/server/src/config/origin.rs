//! Where a value came from.

use std::fmt;

use serde::{Serialize, Serializer};

/// Where a value came from; each goes before those above it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// It was not set.
    Default,
    /// The file, at this line.
    File {
        /// From 1.
        line: usize,
    },
    /// This variable of the environment.
    Environment(String),
    /// This flag of the command line.
    Flag(&'static str),
}

impl Origin {
    /// The line of the file, if it came from there.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::File { line } => Some(*line),
            _ => None,
        }
    }
}

impl Origin {
    /// Whether it is a file that a variable ending in `_FILE` names: what stands there is shown nowhere.
    pub(super) fn is_secret_file(&self) -> bool {
        matches!(self, Self::Environment(name) if name.to_ascii_uppercase().ends_with("_FILE"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { line } => write!(f, "file, line {line}"),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File { .. } => serializer.serialize_str("file"),
            other => serializer.collect_str(other),
        }
    }
}
