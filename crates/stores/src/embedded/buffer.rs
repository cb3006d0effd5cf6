//! Entries that wait in memory to be written to a table.

use super::{entry::Peek, index::Position};

/// Entries on their way to a table, in the order in which they came.
///
/// Invariant: `bytes` holds exactly one whole entry for each element of `from`, in the same order.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Per entry: the hash of its id, and where it lies until the buffer is written.
    from: Vec<(u64, Position)>,
}

impl Buffer {
    pub(super) fn push(&mut self, hash: u64, position: Position, entry: &[u8]) {
        // Grown by a quarter, not doubled: there are hundreds of buffers at the same time.
        if self.bytes.capacity() - self.bytes.len() < entry.len() {
            self.bytes.reserve_exact((self.bytes.len() / 4).max(4096).max(entry.len()));
        }
        self.bytes.extend_from_slice(entry);
        self.from.push((hash, position));
    }

    /// Adds the entries of `newer` after those of this buffer.
    pub(super) fn append(&mut self, newer: &Self) {
        self.bytes.extend_from_slice(&newer.bytes);
        self.from.extend_from_slice(&newer.from);
    }

    /// Bytes of all entries.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.from.is_empty()
    }

    /// The entries, one after the other.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Per entry: the hash of its id, and the position that it is moved from.
    pub(super) fn from(&self) -> &[(u64, Position)] {
        &self.from
    }

    /// Each entry with the hash of its id and the position that it is moved from.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, Position, Peek<'_>)> {
        let mut at = 0;
        self.from.iter().map_while(move |(hash, position)| {
            let peek = Peek::framed(&self.bytes[at..]).ok()?;
            at += peek.len();
            Some((*hash, *position, peek))
        })
    }

    /// [`bytes`](Self::bytes) and [`from`](Self::from).
    pub(super) fn into_parts(self) -> (Vec<u8>, Vec<(u64, Position)>) {
        (self.bytes, self.from)
    }
}
