//! Patterns with `*`.

/// Whether `text` is what `pattern` describes: `*` stands for any text, also none; everything else for itself.
///
/// Only the last `*` is ever tried again, so the work is at most the product of the two lengths, whatever the pattern.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on if what follows the last star does not fit: after the star, and one further in the text.
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

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(matches(pattern, text), "{pattern} {text}");
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
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_costs_no_more_than_its_length_times_the_text() {
        // A matcher that tries every star again would need more steps here than a lifetime has.
        let pattern = "*a".repeat(60) + "b";
        assert!(!matches(&pattern, &"a".repeat(255)));
    }
}
