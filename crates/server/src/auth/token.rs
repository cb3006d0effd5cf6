//! Tokens: kept as hashes, compared in constant time.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::{Caller, Role};

/// How a token's hash is written: this, and 64 hexadecimal digits.
const SCHEME: &str = "sha256:";

/// The SHA-256 of a token: what is kept of it. Tokens are long and random, so no salt is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Reads `sha256:<64 hexadecimal digits>`. The fault names no part of what was written: it may be the token itself.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix(SCHEME).ok_or("a hash is written sha256:<64 hexadecimal digits>")?;
        let wrong = || format!("a hash has 64 hexadecimal digits after {SCHEME}, this one has not");
        // Checked first, as a number may also begin with a plus.
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    /// A hash is no secret, but no help in a log either.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:***")
    }
}

/// One token of the configuration: its hash, and who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The stored hash.
    pub hash: TokenHash,
    /// Its holder and rights.
    pub caller: Caller,
}

impl Token {
    /// The token `text`, which allows `roles` for the topics of these patterns; none: for all.
    pub fn new(name: &str, text: &str, roles: &[Role], topics: &[&str]) -> Self {
        let topics = topics.iter().map(|&topic| topic.to_owned()).collect();
        let caller = Caller { name: name.into(), roles: roles.to_vec(), topics, ids: Vec::new() };
        Self { hash: TokenHash::of(text), caller }
    }

    /// A new token: `duly_` and 32 random bytes. It is shown once and never kept.
    pub fn draw() -> Result<String, String> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| format!("the system gave no random bytes: {error}"))?;
        Ok(format!("duly_{}", URL_SAFE_NO_PAD.encode(bytes)))
    }
}

/// The tokens of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// These.
    pub fn new(tokens: Vec<Token>) -> Self {
        Self(tokens)
    }

    /// Whether there are none: then everybody is [anyone](Caller::anyone).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Token> {
        self.0.iter()
    }

    /// Who holds this token. It is compared with every token in constant time: how long that takes tells neither
    /// whether one fits nor which.
    pub fn caller(&self, token: &str) -> Option<Caller> {
        let given = TokenHash::of(token);
        let mut found = u32::MAX;
        for (index, token) in (0..u32::MAX).zip(&self.0) {
            let same: Choice = token.hash.0.ct_eq(&given.0);
            found.conditional_assign(&index, same);
        }
        self.0.get(usize::try_from(found).ok()?).map(|token| token.caller.clone())
    }
}

/// The token of an `Authorization` header: `Bearer <token>`, the word in any case.
pub fn bearer(header: &str) -> Option<&str> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let token = rest.trim();
    let fits =
        scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains([' ', '\t', ',']);
    fits.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_to_its_holder_and_no_other_text_does() {
        let tokens = Tokens::new(vec![
            Token::new("shop", "duly_aaaa", &[Role::Produce], &["order*"]),
            Token::new("boss", "duly_bbbb", &[Role::Admin], &[]),
        ]);
        assert_eq!(tokens.caller("duly_aaaa").unwrap().name, "shop");
        assert_eq!(tokens.caller("duly_bbbb").unwrap().name, "boss");
        for wrong in ["", "duly_aaab", "duly_aaa", "duly_aaaaa", "DULY_AAAA"] {
            assert_eq!(tokens.caller(wrong), None, "{wrong:?}");
        }
        assert_eq!(Tokens::default().caller(""), None);
    }

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = TokenHash::of("abc");
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), known);
        assert_eq!(TokenHash::parse(known), Ok(hash));
        for bad in [
            "",
            "abc",
            "sha256:",
            "sha256:zz",
            &format!("sha256:{}", "+f".repeat(32)),
            &known[..70],
            &format!("{known}0"),
            &format!("sha256:{:é<32}", ""),
        ] {
            assert!(TokenHash::parse(bad).is_err(), "{bad}");
        }
        assert!(!TokenHash::parse("duly_planted").unwrap_err().contains("planted"));
    }

    #[test]
    fn drawn_tokens_are_long_and_differ() {
        let (a, b) = (Token::draw().unwrap(), Token::draw().unwrap());
        assert_ne!(a, b);
        assert!(a.starts_with("duly_") && a.len() == 5 + 43, "{a}");
        assert_eq!(bearer(&format!("Bearer {a}")), Some(a.as_str()));
    }

    #[test]
    fn a_bearer_header_holds_one_token() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer   abc ", Some("abc")),
            ("BEARER abc", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Basic abc", None),
            ("abc", None),
            ("Bearer a b", None),
            ("", None),
        ] {
            assert_eq!(bearer(header), token, "{header:?}");
        }
    }

    #[test]
    fn neither_tokens_nor_hashes_are_shown() {
        let tokens = Tokens::new(vec![Token::new("shop", "planted", &[Role::Read], &[])]);
        let shown = format!("{tokens:?}");
        assert!(shown.contains("shop") && shown.contains("sha256:***"), "{shown}");
        assert!(!shown.contains("planted"));
    }
}
