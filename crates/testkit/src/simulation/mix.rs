//! The faults of one run. Every mix is tried: drawn at random, a crash would heal the very bug that a failed
//! delivery alone would have shown.

use std::{fmt, str::FromStr};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process dies without a word and is started again.
    Crash,
    /// Targets are away, slow, refusing, or take the message and do not say so; handlers fail, panic and hang.
    FailedDelivery,
    /// The store takes its time, and now and then says "not now".
    SlowStore,
    /// Messages come into the store without anybody being told.
    LostWakeUp,
    /// Wall time steps, forwards and backwards.
    ClockJump,
    /// The process stands still for up to two minutes.
    PausedProcess,
}

impl Fault {
    /// All of them, in the order of their bits.
    pub const ALL: [Self; 6] = [
        Self::Crash,
        Self::FailedDelivery,
        Self::SlowStore,
        Self::LostWakeUp,
        Self::ClockJump,
        Self::PausedProcess,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::FailedDelivery => "failed_delivery",
            Self::SlowStore => "slow_store",
            Self::LostWakeUp => "lost_wake_up",
            Self::ClockJump => "clock_jump",
            Self::PausedProcess => "paused_process",
        }
    }
}

/// A set of faults, written `crash+clock_jump`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mix(u8);

impl Mix {
    /// All 64, the empty one first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..1 << Fault::ALL.len()).map(Self)
    }

    /// These faults and no others.
    pub fn of(faults: &[Fault]) -> Self {
        faults.iter().fold(Self::default(), |mix, fault| Self(mix.0 | 1 << (*fault as u8)))
    }

    /// Whether `fault` is among them.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & (1 << (fault as u8)) != 0
    }

    /// As a number, to tell runs of different mixes apart.
    pub(super) fn bits(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            Fault::ALL.into_iter().filter(|fault| self.has(*fault)).map(Fault::name).collect();
        f.write_str(if names.is_empty() { "none".into() } else { names.join("+") }.as_str())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = Self::default();
        for name in text.split('+').filter(|name| *name != "none") {
            let fault = Fault::ALL.into_iter().find(|fault| fault.name() == name);
            let fault = fault.ok_or_else(|| {
                let known = Fault::ALL.map(Fault::name).join(", ");
                format!("{name:?} is no fault; there are {known}, joined by +, or none")
            })?;
            mix = Self(mix.0 | Self::of(&[fault]).0);
        }
        Ok(mix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_reads_back_what_it_wrote() {
        assert_eq!(Mix::all().count(), 64);
        for mix in Mix::all() {
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        assert!("crash+rain".parse::<Mix>().unwrap_err().contains("rain"));
    }
}
