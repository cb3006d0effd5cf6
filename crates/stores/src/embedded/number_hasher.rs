//! A hasher for keys that are numbers: hashes, tokens, file numbers.

use std::hash::{BuildHasher, Hasher};

/// Builds the hasher.
#[derive(Default, Clone, Copy)]
pub(super) struct NumberHasher;

/// One multiplication: nobody outside chooses these numbers, so nothing more is needed.
pub(super) struct Multiply(u64);

impl BuildHasher for NumberHasher {
    type Hasher = Multiply;

    fn build_hasher(&self) -> Multiply {
        Multiply(0)
    }
}

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(value ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = wide as u64 ^ (wide >> 64) as u64;
    }
}
