//! Whether the messages in a table are as they were written, found while its bytes pass by.

use super::super::entry::Peek;

/// Bytes of an entry before what its checksum is of: its length, and that checksum.
const HEADER: usize = 8;

/// The entries of one table, which lie one behind the other.
#[derive(Default)]
pub(super) struct Entries {
    header: Vec<u8>,
    /// Bytes of the current entry that are missing after its header.
    left: usize,
    crc: u32,
    is_damaged: bool,
}

impl Entries {
    /// Takes the next bytes of the table.
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_damaged {
            if self.left == 0 {
                let (more, rest) = bytes.split_at(bytes.len().min(HEADER - self.header.len()));
                self.header.extend_from_slice(more);
                bytes = rest;
                if self.header.len() == HEADER {
                    match Peek::length(&self.header) {
                        Ok(len) => (self.left, self.crc) = (len - HEADER, 0),
                        // Where the next one begins is not known either.
                        Err(_) => self.is_damaged = true,
                    }
                }
                continue;
            }
            let (more, rest) = bytes.split_at(bytes.len().min(self.left));
            self.crc = crc32c::crc32c_append(self.crc, more);
            self.left -= more.len();
            bytes = rest;
            if self.left == 0 {
                self.is_damaged = self.crc.to_le_bytes() != self.header[4..];
                self.header.clear();
            }
        }
    }

    /// Whether one of them does not match its checksum, or the last one is not whole.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged || self.left > 0 || !self.header.is_empty()
    }
}
