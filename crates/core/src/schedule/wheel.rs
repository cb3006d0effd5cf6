//! A hierarchical timing wheel: setting a timer and finding the next one do not depend on the number of timers.

use crate::Monotonic;

/// Slots per level; one bit of a word says whether a slot is occupied.
const SLOTS: usize = 64;
const SLOT_BITS: u32 = SLOTS.trailing_zeros();
/// Enough levels of six bits for every microsecond of 64 bits.
const LEVELS: usize = 11;

/// Timers by monotonic microsecond. A timer cannot be cancelled: its owner checks whether it still matters.
#[derive(Debug)]
pub(super) struct Wheel<T> {
    base: u64,
    levels: Vec<Level<T>>,
}

#[derive(Debug)]
struct Level<T> {
    occupied: u64,
    slots: Vec<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    /// The earliest of its timers, so that the next wake-up is exact without reading the slot.
    first: u64,
    timers: Vec<(u64, T)>,
}

impl<T> Wheel<T> {
    pub(super) fn new() -> Self {
        let slot = || Slot { first: u64::MAX, timers: Vec::new() };
        let level = || Level { occupied: 0, slots: (0..SLOTS).map(|_| slot()).collect() };
        Self { base: 0, levels: (0..LEVELS).map(|_| level()).collect() }
    }

    /// Sets a timer; one in the past fires at the next [`advance`](Self::advance).
    pub(super) fn set(&mut self, at: Monotonic, timer: T) {
        let at = at.as_micros().max(self.base);
        let differing = (at ^ self.base) | 1;
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let slot = slot_of(at, level);
        let level = &mut self.levels[level];
        level.occupied |= 1 << slot;
        let slot = &mut level.slots[slot];
        slot.first = slot.first.min(at);
        slot.timers.push((at, timer));
    }

    /// When the next timer fires.
    pub(super) fn next(&self) -> Option<Monotonic> {
        // A lower level only holds what comes before anything on a higher one.
        let level = self.levels.iter().find(|level| level.occupied != 0)?;
        let slot = level.occupied.trailing_zeros() as usize;
        Some(Monotonic::from_micros(level.slots[slot].first))
    }

    /// Advances to `now` and collects the timers that fire.
    pub(super) fn advance(&mut self, now: Monotonic, fired: &mut Vec<T>) {
        let now = now.as_micros();
        if now < self.base {
            return;
        }
        let before = std::mem::replace(&mut self.base, now);
        for level in 0..LEVELS {
            let passed = if beyond(before, level) == beyond(now, level) {
                u64::MAX >> (SLOTS - 1 - slot_of(now, level))
            } else {
                u64::MAX
            };
            let mut due = self.levels[level].occupied & passed;
            self.levels[level].occupied &= !passed;
            while due != 0 {
                let slot = &mut self.levels[level].slots[due.trailing_zeros() as usize];
                due &= due - 1;
                slot.first = u64::MAX;
                for (at, timer) in std::mem::take(&mut slot.timers) {
                    if at <= now {
                        fired.push(timer);
                    } else {
                        self.set(Monotonic::from_micros(at), timer);
                    }
                }
            }
        }
    }
}

fn slot_of(at: u64, level: usize) -> usize {
    (at >> (SLOT_BITS * level as u32)) as usize & (SLOTS - 1)
}

/// The bits of a time above `level`.
fn beyond(at: u64, level: usize) -> u64 {
    at.checked_shr(SLOT_BITS * (level as u32 + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Random;

    fn at(micros: u64) -> Monotonic {
        Monotonic::from_micros(micros)
    }

    #[test]
    fn a_wheel_fires_like_a_sorted_list() {
        let mut random = Random::new(7);
        let (mut wheel, mut list, mut now) = (Wheel::new(), Vec::new(), 0);
        for _ in 0..20_000 {
            if random.draw().is_multiple_of(2) {
                let ahead = random.draw() >> (random.draw() % 64);
                let time = u64::saturating_add(now, ahead);
                wheel.set(at(time), time);
                list.push(time);
            } else {
                now = u64::saturating_add(now, random.draw() >> (20 + random.draw() % 44));
                let mut fired = Vec::new();
                wheel.advance(at(now), &mut fired);
                fired.sort_unstable();
                list.sort_unstable();
                let rest = list.split_off(list.partition_point(|&time| time <= now));
                assert_eq!(fired, list);
                list = rest;
            }
            assert_eq!(wheel.next(), list.iter().min().map(|&time| at(time)));
        }
    }

    #[test]
    fn a_timer_in_the_past_fires_at_once() {
        let mut wheel = Wheel::new();
        let mut fired = Vec::new();
        wheel.advance(at(1_000_000), &mut fired);
        wheel.set(at(5), "late");
        assert_eq!(wheel.next(), Some(at(1_000_000)));
        wheel.advance(at(1_000_000), &mut fired);
        assert_eq!(fired, ["late"]);
    }
}
