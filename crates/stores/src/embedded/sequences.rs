//! Numbers that only grow.

/// The numbers of files and the versions of entries.
///
/// Invariant: neither is ever given out twice, not even after a power cut. The manifest keeps how far they are, and opening the
/// store goes past everything that it finds.
pub(super) struct Sequences {
    last_file: u32,
    next_version: u64,
}

impl Sequences {
    pub(super) fn new(last_file: u32, next_version: u64) -> Self {
        Self { last_file, next_version }
    }

    /// The next number for a file of any kind.
    pub(super) fn file_number(&mut self) -> u32 {
        self.last_file += 1;
        self.last_file
    }

    /// The number of the newest file.
    pub(super) fn last_file(&self) -> u32 {
        self.last_file
    }

    /// The next version for an entry.
    pub(super) fn version(&mut self) -> u64 {
        let version = self.next_version;
        self.next_version += 1;
        version
    }

    /// The version that the next entry gets.
    pub(super) fn next_version(&self) -> u64 {
        self.next_version
    }

    /// An entry on disk has this version.
    pub(super) fn saw_version(&mut self, version: u64) {
        self.next_version = self.next_version.max(version + 1);
    }

    /// Leaves out so many versions: they may have been given out in frames that a power cut lost.
    pub(super) fn skip_versions(&mut self, count: u64) {
        self.next_version += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_out_twice() {
        let mut sequences = Sequences::new(4, 10);
        assert_eq!((sequences.file_number(), sequences.file_number(), sequences.last_file()), (5, 6, 6));
        sequences.saw_version(8);
        assert_eq!(sequences.version(), 10);
        sequences.saw_version(20);
        sequences.skip_versions(100);
        assert_eq!((sequences.version(), sequences.next_version()), (121, 122));
    }
}
