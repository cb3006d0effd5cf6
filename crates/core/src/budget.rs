//! The byte budget of a claim.

use crate::{Record, StoredMessage, store::Claim};

impl Claim {
    /// Bytes of bodies and properties in one claim, unless a single message has more. A limit on the number of messages
    /// alone would let a thousand large ones fill the memory.
    pub const BYTES_MAX: usize = 16 * 1024 * 1024;
}

/// Counts the bytes of messages in claim order, up to [`Claim::BYTES_MAX`].
#[derive(Debug, Default)]
pub struct ClaimBudget {
    taken: usize,
    is_begun: bool,
    is_over: bool,
}

impl ClaimBudget {
    /// Whether the next message belongs to the claim: always the first one, and none from the first that does not fit.
    pub fn takes(&mut self, bytes: usize) -> bool {
        self.taken = self.taken.saturating_add(bytes);
        self.is_over |= self.is_begun && self.taken > Claim::BYTES_MAX;
        self.is_begun = true;
        !self.is_over
    }
}

impl StoredMessage {
    /// Bytes of its body and its properties.
    pub fn bytes(&self) -> usize {
        let properties = self.properties.iter().map(|(name, value)| name.len() + value.len());
        self.body.len() + properties.sum::<usize>()
    }
}

impl Record {
    /// Bytes of a record, beside those of its texts.
    const BYTES: usize = 512;

    /// About how many bytes it takes in a list, without its body.
    pub fn listed_bytes(&self) -> usize {
        let history: usize = self.history.iter().map(|attempt| attempt.detail.len() + 32).sum();
        let receipt = self.receipt.as_ref().map_or(0, String::len);
        Self::BYTES + self.message.bytes() - self.message.body.len() + history + receipt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_always_given_and_nothing_behind_one_that_does_not_fit() {
        let taken = |sizes: &[usize]| {
            let mut budget = ClaimBudget::default();
            sizes.iter().filter(|bytes| budget.takes(**bytes)).count()
        };
        assert_eq!(taken(&[2 * Claim::BYTES_MAX, 0, 1]), 1);
        assert_eq!(taken(&[Claim::BYTES_MAX, 0, 1]), 2);
        assert_eq!(taken(&[1, Claim::BYTES_MAX, 1]), 1);
        assert_eq!(taken(&[usize::MAX, usize::MAX]), 1);
        assert_eq!(taken(&[0; 1000]), 1000);
    }
}
