//! Limits of messages.

use std::time::Duration;

use crate::{ErrorCode, Invalid};

/// The limits of a Duly. Each has its own error code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one body.
    pub body_bytes_max: usize,
    /// Properties of one message.
    pub properties_max: usize,
    /// Messages of one batch.
    pub batch_max: usize,
    /// How far ahead a due time may lie.
    pub delay_max: Duration,
    /// Messages waiting at the same time.
    pub pending_max: u64,
}

impl Limits {
    /// The refusal of a due time beyond [`delay_max`](Self::delay_max), which the field `path` asks for.
    pub fn too_far(&self, path: &'static str) -> Invalid {
        const UNITS: [(u128, &str); 5] =
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
        let ms = self.delay_max.as_millis();
        let (size, unit) = UNITS.into_iter().find(|(size, _)| ms.is_multiple_of(*size)).unwrap_or((1, "ms"));
        Invalid::new(ErrorCode::TooFar, path, format!("due more than {}{unit} from now", ms / size))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            properties_max: 64,
            batch_max: 10_000,
            delay_max: Duration::from_secs(3653 * 86_400),
            pending_max: 1_000_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_delays_is_told_in_a_unit_that_fits() {
        for (ms, words) in
            [(60_000, "1m"), (36 * 3_600_000, "36h"), (3653 * 86_400_000, "3653d"), (1_500, "1500ms")]
        {
            let limits = Limits { delay_max: Duration::from_millis(ms), ..Limits::default() };
            let refused = limits.too_far("delay");
            assert_eq!(
                (refused.path.as_str(), refused.detail),
                ("delay", format!("due more than {words} from now"))
            );
        }
    }
}
