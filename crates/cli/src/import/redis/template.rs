//! Names made of names: topics of keys, keys of bodies, ids of members.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Text with `{key}` and `{member}` in it.
#[derive(Debug, Clone)]
pub(super) struct Template(String);

impl Template {
    /// Reads one; another word in braces is a slip.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.replace("{key}", "").replace("{member}", "");
        rest.retain(|c| c == '{' || c == '}');
        if rest.is_empty() {
            return Ok(Self(text.to_owned()));
        }
        Err("only {key} and {member} may stand in braces".into())
    }

    /// Whether it names the member.
    pub(super) fn has_member(&self) -> bool {
        self.0.contains("{member}")
    }

    /// With both put in.
    pub(super) fn fill(&self, key: &[u8], member: &[u8]) -> Vec<u8> {
        let mut filled = Vec::with_capacity(self.0.len() + key.len() + member.len());
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find('{') {
            filled.extend_from_slice(&rest.as_bytes()[..at]);
            let (value, length) = match rest[at..].starts_with("{key}") {
                true => (key, "{key}".len()),
                false => (member, "{member}".len()),
            };
            filled.extend_from_slice(value);
            rest = &rest[at + length..];
        }
        filled.extend_from_slice(rest.as_bytes());
        filled
    }
}

/// The id of a member's message: the same whenever it is read again, another for any other key, member or score.
pub(super) fn id(key: &[u8], member: &[u8], score: f64) -> String {
    let mut hash = Sha256::new();
    // The lengths keep ("ab", "c") and ("a", "bc") apart.
    for part in [key, member] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    // Zero and minus zero are one score.
    hash.update((score + 0.0).to_bits().to_be_bytes());
    hash.finalize()[..16].iter().fold("zset-".to_owned(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_takes_key_and_member_wherever_they_stand() {
        let fill = |text: &str| Template::parse(text).unwrap().fill(b"delay:a", b"{key}7");
        assert_eq!(fill("order:{member}"), b"order:{key}7");
        assert_eq!(fill("{key}/{member}!"), b"delay:a/{key}7!");
        assert_eq!(fill("plain"), b"plain");
        for slip in ["{id}", "{member", "a}"] {
            assert!(Template::parse(slip).is_err(), "{slip}");
        }
    }

    #[test]
    fn the_id_is_of_key_member_and_score_together() {
        let first = id(b"a", b"m", 5.0);
        assert_eq!(first, id(b"a", b"m", 5.0));
        assert_eq!(first.len(), 37);
        assert_eq!(id(b"a", b"m", 0.0), id(b"a", b"m", -0.0));
        let others = [id(b"b", b"m", 5.0), id(b"a", b"n", 5.0), id(b"a", b"m", 5.5), id(b"am", b"", 5.0)];
        assert!(!others.contains(&first));
    }
}
