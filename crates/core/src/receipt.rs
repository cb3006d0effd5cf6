//! The proof of a claim.

use std::{fmt, str::FromStr};

use crate::{ErrorCode, Invalid, MessageId};

/// Proof that the holder has claimed a message. It is self-contained: any node can settle by it, also after a restart.
///
/// The token is a fencing token: it grows with every claim, and a settle with an old one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The shard that the message lives in.
    pub shard: u16,
    /// The claim's fencing token.
    pub token: u64,
    /// The message.
    pub id: MessageId,
}

/// Bytes of the longest receipt that is ever given out.
const LEN_MAX: usize = 4 + 1 + 16 + 1 + MessageId::LEN_MAX;

/// `<shard>.<token>.<id>`, the first two in hexadecimal.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:x}.{}", self.shard, self.token, self.id)
    }
}

impl FromStr for Receipt {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parse = || {
            // Numbers may begin with any count of zeros, and whoever settles is answered with the text that was sent.
            let (shard, rest) = Some(text).filter(|text| text.len() <= LEN_MAX)?.split_once('.')?;
            let (token, id) = rest.split_once('.')?;
            Some(Self {
                shard: u16::from_str_radix(shard, 16).ok()?,
                token: u64::from_str_radix(token, 16).ok()?,
                id: MessageId::parse(id).ok()?,
            })
        };
        parse().ok_or_else(|| {
            Invalid::new(
                ErrorCode::BadReceipt,
                "receipt",
                "not a receipt: give back the one that came with the message",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_reads_back_what_it_wrote() {
        let receipt = Receipt { shard: 15, token: u64::MAX, id: MessageId::parse("a.b:c-d").unwrap() };
        assert_eq!(receipt.to_string().parse(), Ok(receipt));
    }

    #[test]
    fn no_receipt_is_longer_than_the_longest_that_is_given_out() {
        let id = MessageId::parse(&"i".repeat(MessageId::LEN_MAX)).unwrap();
        let longest = Receipt { shard: u16::MAX, token: u64::MAX, id }.to_string();
        assert_eq!(longest.len(), LEN_MAX);
        assert!(longest.parse::<Receipt>().is_ok());
        let padded = format!("{}1.2.a", "0".repeat(LEN_MAX));
        assert_eq!(padded.parse::<Receipt>().unwrap_err().code, "bad_receipt");
    }

    #[test]
    fn rubbish_is_not_a_receipt() {
        for bad in ["", ".", "1.2", "1.2.", "x.2.a", "1.2.a b", "10000.1.a"] {
            assert_eq!(bad.parse::<Receipt>().unwrap_err().code, "bad_receipt", "{bad:?}");
        }
    }
}
