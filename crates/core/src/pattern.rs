//! Patterns with `*`, and the topics that they allow.

use crate::{ErrorCode, Invalid};

/// Whether `text` matches `pattern`: `*` matches any text, also none; every other character matches itself.
///
/// It backtracks to the last `*` only, so the work is at most the product of the two lengths.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to backtrack to on a mismatch: after the last star, one byte further in the text.
    let mut again = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            again = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star, from)) = again {
            again = Some((star, from + 1));
            (p, t) = (star, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|rest| *rest == b'*')
}

/// The allowed topics: those that match a pattern, or all if there is no pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicPatterns(Vec<String>);

impl TopicPatterns {
    /// The most bytes of a pattern: as many as a topic has.
    pub const LEN_MAX: usize = 255;

    /// These patterns, each of 1 to 255 bytes.
    pub fn new(patterns: impl IntoIterator<Item: Into<String>>) -> Result<Self, Invalid> {
        let patterns: Vec<String> = patterns.into_iter().map(Into::into).collect();
        match patterns.iter().find(|pattern| pattern.is_empty() || pattern.len() > Self::LEN_MAX) {
            Some(pattern) => {
                let detail = format!("{pattern:?} is not a pattern: it has 1 to {} bytes", Self::LEN_MAX);
                Err(Invalid::new(ErrorCode::BadTopic, "topics", detail))
            }
            None => Ok(Self(patterns)),
        }
    }

    /// Whether every topic is allowed.
    pub fn allows_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this topic is allowed.
    pub fn allows(&self, topic: &str) -> bool {
        self.allows_all() || self.0.iter().any(|pattern| matches_pattern(pattern, topic))
    }

    /// The patterns.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_patterns_every_topic_is_allowed_and_with_them_only_theirs() {
        assert!(TopicPatterns::default().allows("anything"));
        let some = TopicPatterns::new(["orders*", "mail"]).unwrap();
        assert!(some.allows("orders.paid") && some.allows("mail"));
        assert!(!some.allows("mails") && !some.allows("my-orders") && !some.allows_all());
        assert_eq!(TopicPatterns::new([""]).unwrap_err().code, "bad_topic");
        TopicPatterns::new(["*".repeat(256)]).unwrap_err();
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in [
            ("order", "order"),
            ("order*", "order"),
            ("order*", "order.paid"),
            ("*.paid", "order.paid"),
            ("*", "anything"),
            ("*", ""),
            ("a*b*c", "a-b-b-c"),
            ("**", "x"),
            ("заказ*", "заказ/истёк"),
            ("*ab*ab", "abcabab"),
        ] {
            assert!(matches_pattern(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("order", "orders"),
            ("order", "Order"),
            ("order*", "my-order"),
            ("a*b", "a-c"),
            ("", "x"),
            ("a?", "ab"),
            ("*ab", "aba"),
        ] {
            assert!(!matches_pattern(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_costs_no_more_than_its_length_times_the_text() {
        // A matcher that tries every star again would need more steps here than a lifetime has.
        let pattern = "*a".repeat(60) + "b";
        assert!(!matches_pattern(&pattern, &"a".repeat(255)));
    }
}
