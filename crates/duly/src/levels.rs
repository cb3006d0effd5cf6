//! Levels: named delays.

use std::{collections::BTreeMap, time::Duration};

use duly_core::{ErrorCode, Invalid};

use crate::minutes;

/// Delays by name. A level is resolved when the message is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    delays: BTreeMap<String, Duration>,
    fallback: Option<String>,
}

impl Default for Levels {
    /// `P0` 5 minutes, `P1` 10 minutes, `other` 20 minutes; an unknown level is refused.
    fn default() -> Self {
        Self::none().set("P0", minutes(5)).set("P1", minutes(10)).set("other", minutes(20))
    }
}

impl Levels {
    /// No levels at all.
    pub fn none() -> Self {
        Self { delays: BTreeMap::new(), fallback: None }
    }

    /// Sets the delay of a level.
    pub fn set(mut self, name: impl Into<String>, delay: Duration) -> Self {
        self.delays.insert(name.into(), delay);
        self
    }

    /// Sets the level that unknown names mean.
    pub fn fallback(mut self, name: impl Into<String>) -> Self {
        self.fallback = Some(name.into());
        self
    }

    /// The level that unknown names mean; `None`: they are refused.
    pub fn fallback_name(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// The delay of a level.
    pub fn delay(&self, name: &str) -> Result<Duration, Invalid> {
        let known = self.delays.get(name);
        known.or_else(|| self.fallback.as_ref().and_then(|name| self.delays.get(name))).copied().ok_or_else(
            || {
                let names = self.delays.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                Invalid::new(
                    ErrorCode::UnknownLevel,
                    "level",
                    format!("no level {name:?}; there are: {names}"),
                )
            },
        )
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Duration)> {
        self.delays.iter().map(|(name, delay)| (name.as_str(), *delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_level_is_refused_unless_a_fallback_is_set() {
        let levels = Levels::default();
        assert_eq!(levels.delay("P0"), Ok(minutes(5)));
        assert_eq!(levels.delay("P9").unwrap_err().code, "unknown_level");
        assert_eq!(levels.fallback("other").delay("P9"), Ok(minutes(20)));
    }
}
