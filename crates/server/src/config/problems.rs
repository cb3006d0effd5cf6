//! Everything that is wrong with a configuration, at once.

use std::{fmt, path::PathBuf};

use serde::Serialize;

use super::Origin;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where in the configuration: `sinks.orders.timeout`. Empty: the file as a whole.
    pub path: String,
    /// The line of the file, if it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Which of the sources holds it.
    pub from: Origin,
    /// What is wrong and what would be right.
    pub detail: String,
}

/// All that is wrong, in the order of the file; what the environment and flags say comes last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The file that was read, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Each of them.
    pub problems: Vec<Problem>,
}

impl Problem {
    pub(super) fn new(path: impl Into<String>, from: Origin, detail: impl Into<String>) -> Self {
        Self { path: path.into(), line: from.line(), from, detail: detail.into() }
    }
}

impl Problems {
    pub(super) fn new(file: Option<PathBuf>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| (&a.from, &a.path).cmp(&(&b.from, &b.path)));
        Self { file, problems }
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => f.write_str("the configuration has a problem:")?,
            count => write!(f, "the configuration has {count} problems:")?,
        }
        for problem in &self.problems {
            f.write_str("\n  ")?;
            match (&problem.from, &self.file) {
                (Origin::File { line }, Some(file)) => write!(f, "{}:{line}: ", file.display())?,
                (Origin::Environment(_) | Origin::Flag(_), _) => write!(f, "{}: ", problem.from)?,
                (Origin::Default, Some(file)) if problem.path.is_empty() => {
                    write!(f, "{}: ", file.display())?
                }
                _ => {}
            }
            if !problem.path.is_empty() {
                write!(f, "{}: ", problem.path)?;
            }
            f.write_str(&problem.detail)?;
        }
        Ok(())
    }
}
