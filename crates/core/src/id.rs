//! Message ids.

use std::{fmt, str::FromStr};

use compact_str::CompactString;

use crate::{ErrorCode, Invalid, Timestamp};

/// The id of a message: 1–128 of `A-Za-z0-9._:-`, unique in one Duly. Given by the client, who can then repeat a send
/// safely, or generated.
///
/// Generated ids have 24 characters and sort by the time of their creation. Ids of up to 24 characters need no
/// allocation.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(CompactString);

/// Crockford's base 32 in lower case: it sorts like the number, and has no ambiguous letters.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl MessageId {
    /// Bytes of an id.
    pub const LEN_MAX: usize = 128;

    /// Checks a client's id.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
        if text.is_empty() || text.len() > Self::LEN_MAX || !text.bytes().all(good) {
            let detail = format!(
                "an id has 1 to {} characters of A-Z a-z 0-9 . _ : - and this one has {} bytes{}",
                Self::LEN_MAX,
                text.len(),
                if text.bytes().all(good) { "" } else { " with others among them" },
            );
            return Err(Invalid::new(ErrorCode::BadId, "id", detail));
        }
        Ok(Self(CompactString::new(text)))
    }

    /// Generates an id from the current time (upper 48 bits) and 72 random bits.
    pub fn generate(at: Timestamp, random: u128) -> Self {
        let bits = (u128::from(at.as_millis()) << 72) | (random & ((1 << 72) - 1));
        let mut text = [0u8; 24];
        for (place, byte) in text.iter_mut().enumerate() {
            *byte = ALPHABET[(bits >> (5 * (23 - place)) & 31) as usize];
        }
        Self(CompactString::from_utf8_lossy(&text))
    }

    /// An id from the unique number of a generator and its counter.
    pub fn from_counter(maker: u64, number: u64) -> Self {
        Self(compact_str::format_compact!("{maker:016x}-{number}"))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A hash of the id, the same on every machine and in every version: shards and indexes use it.
    pub fn hash64(&self) -> u64 {
        rapidhash::v3::rapidhash_v3(self.0.as_bytes())
    }
}

impl FromStr for MessageId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::parse(text)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_sort_by_time_and_are_valid() {
        let early = MessageId::generate(Timestamp::from_millis(1_000), u128::MAX);
        let late = MessageId::generate(Timestamp::from_millis(1_001), 0);
        assert!(early < late);
        assert_eq!(early.as_str().len(), 24);
        assert_eq!(MessageId::parse(early.as_str()), Ok(early));
        let numbered = MessageId::from_counter(10, u64::MAX);
        assert_eq!(numbered.as_str(), "000000000000000a-18446744073709551615");
        assert_eq!(MessageId::parse(numbered.as_str()), Ok(numbered));
    }

    #[test]
    fn ids_outside_the_alphabet_or_the_length_are_refused() {
        for bad in ["", "a/b", "a b", "ü", "a\n", &"x".repeat(129)] {
            assert_eq!(MessageId::parse(bad).unwrap_err().code, "bad_id", "{bad:?}");
        }
        assert!(MessageId::parse(&"x".repeat(128)).is_ok());
        assert!(MessageId::parse("order:42_a.b-C").is_ok());
    }

    #[test]
    fn the_hash_never_changes_between_versions() {
        assert_eq!(MessageId::parse("order-42").unwrap().hash64(), 7_970_499_984_128_651_530);
    }
}
