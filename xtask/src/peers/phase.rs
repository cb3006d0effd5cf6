//! What every system does.

use clap::ValueEnum;

use super::Options;

/// A burst is due at least this long after the time that accepting it should take.
const LEAD_MS: u64 = 3_000;
/// Without a measured rate of the system.
const LEAD_UNKNOWN_MS: u64 = 15_000;
/// No phase accepts for longer.
const ACCEPT_S: u64 = 30;
/// Messages that wait already when the first measure of the memory is taken.
const WARM_UP: u64 = 1_000;
/// The kill comes after so many were accepted.
const CRASH_AFTER: u64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(super) enum Phase {
    Batch,
    Single,
    Late,
    Burst,
    Fill,
    Crash,
}

impl Phase {
    /// The word that the drivers know.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Single => "single",
            Self::Late => "late",
            Self::Burst => "burst",
            Self::Fill => "fill",
            Self::Crash => "crash",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Batch => "accept in batches by one client",
            Self::Single => "accept from 64 single posters",
            Self::Late => "lateness at a steady rate",
            Self::Burst => "burst at one instant",
            Self::Fill => "memory per pending message",
            Self::Crash => "kill -9 while it accepts",
        }
    }

    /// The options of the driver; `per_s` is how fast the system accepts in batches.
    pub(super) fn arguments(self, options: &Options, per_s: Option<f64>) -> Vec<String> {
        let mut numbers = vec![("--limit", ACCEPT_S)];
        match self {
            Self::Batch | Self::Single => numbers.push(("--count", options.count)),
            Self::Late => numbers.extend([("--rate", options.rate), ("--seconds", options.seconds)]),
            Self::Burst => {
                let count = if options.large { 100_000 } else { options.count };
                let accepted_in = |count: u64, per_s: f64| count as f64 / per_s.max(1.0);
                let count = match per_s {
                    Some(per_s) => count.min((per_s * ACCEPT_S as f64) as u64).max(1),
                    None => count,
                };
                let lead = match per_s {
                    Some(per_s) => LEAD_MS + (accepted_in(count, per_s) * 1_500.0) as u64,
                    None => LEAD_UNKNOWN_MS,
                };
                numbers.extend([("--count", count), ("--lead", lead)]);
            }
            Self::Fill => numbers.push(("--count", options.pending)),
            Self::Crash => numbers.push(("--count", CRASH_AFTER.min(options.count))),
        }
        numbers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]).collect()
    }
}

/// The options of the driver before the phase `fill` is measured.
pub(super) fn warm_up() -> Vec<String> {
    vec!["--count".into(), WARM_UP.to_string()]
}
