//! One file of a [`PowerDisk`](super::PowerDisk): what is synced, and what was done to it since.

use std::collections::HashMap;

use duly_core::schedule::Random;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Something done to a file that no sync has covered yet.
#[derive(Debug, Clone)]
enum Unsynced {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

/// A file.
#[derive(Debug, Clone, Default)]
pub(super) struct Sectors {
    /// As the process sees it.
    pub(super) now: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

/// How much of what was not synced a cut leaves.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mercy {
    None,
    Some,
    All,
}

impl Mercy {
    pub(super) fn draw(random: &mut Random) -> Self {
        match random.draw() % 6 {
            0 => Self::None,
            1 => Self::All,
            _ => Self::Some,
        }
    }

    pub(super) fn spares(self, random: &mut Random) -> bool {
        match self {
            Self::None => false,
            Self::Some => random.draw().is_multiple_of(2),
            Self::All => true,
        }
    }
}

impl Sectors {
    fn synced(bytes: Vec<u8>) -> Self {
        Self { now: bytes.clone(), synced: bytes, unsynced: Vec::new() }
    }

    pub(super) fn write(&mut self, bytes: &[u8], at: usize) {
        put(&mut self.now, bytes, at);
        self.unsynced.push(Unsynced::Write(at, bytes.to_vec()));
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.now.resize(len, 0);
        self.unsynced.push(Unsynced::SetLen(len));
    }

    pub(super) fn sync(&mut self) {
        for done in std::mem::take(&mut self.unsynced) {
            match done {
                Unsynced::Write(at, bytes) => put(&mut self.synced, &bytes, at),
                Unsynced::SetLen(len) => self.synced.resize(len, 0),
            }
        }
    }

    /// A sync failed: what it should have covered counts as written and is not. It is read back until the machine stops.
    pub(super) fn forget_unsynced(&mut self) {
        self.unsynced.clear();
    }

    /// The file as a power cut leaves it: of each sector, as many of its latest writes as chance says are missing.
    pub(super) fn cut(&self, random: &mut Random) -> Self {
        let mercy = Mercy::draw(random);
        let mut left = self.synced.clone();
        let mut lost: HashMap<usize, bool> = HashMap::new();
        for done in &self.unsynced {
            match done {
                Unsynced::SetLen(len) => {
                    if mercy.spares(random) {
                        left.resize(*len, 0);
                    }
                }
                Unsynced::Write(at, bytes) => {
                    let mut from = 0;
                    while from < bytes.len() {
                        let sector = (at + from) / SECTOR;
                        let to = bytes.len().min((sector + 1) * SECTOR - at);
                        // What came later to a sector is not on it without what came before.
                        let lost = lost.entry(sector).or_default();
                        *lost = *lost || !mercy.spares(random);
                        if !*lost {
                            put(&mut left, &bytes[from..to], at + from);
                        }
                        from = to;
                    }
                }
            }
        }
        Self::synced(left)
    }
}

fn put(file: &mut Vec<u8>, bytes: &[u8], at: usize) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_what_was_synced_and_some_of_the_rest() {
        let mut file = Sectors::default();
        file.write(&[1; 4 * SECTOR], 0);
        file.sync();
        file.write(&[2; 3 * SECTOR], SECTOR);
        let mut seen = std::collections::HashSet::new();
        for seed in 0..200 {
            let left = file.cut(&mut Random::new(seed)).now;
            assert_eq!(left[..SECTOR], [1; SECTOR]);
            for sector in left.chunks(SECTOR) {
                assert!(sector.iter().all(|byte| byte == &sector[0]), "a sector is whole");
            }
            seen.insert(left.chunks(SECTOR).map(|sector| sector[0]).collect::<Vec<_>>());
        }
        assert_eq!(seen.len(), 8, "every subset of the three sectors is left some time");
    }
}
