//! Tokens of different tenants that reach the same topics or ids.

use super::{Caller, Role, Tokens};

/// Pairs listed by name; further ones are only counted.
const NAMED_MAX: usize = 10;

impl Tokens {
    /// The pairs of tokens whose topics or ids overlap, in words. Tenants are separate only if they do not.
    ///
    /// Tokens with the same patterns are one tenant's. Those that neither send nor operate take nothing from others.
    pub fn overlaps(&self) -> Vec<String> {
        let acts = |caller: &&Caller| caller.may(Role::Produce) || caller.may(Role::Operate);
        let callers: Vec<_> =
            self.iter().map(|token| &token.caller).filter(|caller| !caller.sees_all()).filter(acts).collect();
        let pairs = callers
            .iter()
            .enumerate()
            .flat_map(|(place, one)| callers[place + 1..].iter().filter_map(move |two| overlap_of(one, two)));
        let mut words: Vec<_> = pairs.collect();
        if words.len() > NAMED_MAX {
            let more = words.len() - NAMED_MAX;
            words.truncate(NAMED_MAX);
            words.push(format!("{more} more pairs of tokens overlap"));
        }
        words
    }
}

fn overlap_of(one: &Caller, two: &Caller) -> Option<String> {
    if one.topics == two.topics && one.ids == two.ids {
        return None;
    }
    let names = format!("tokens {:?} and {:?}", one.name, two.name);
    if let Some((own, other)) = common(&one.topics, &two.topics) {
        let words = "if they are of different tenants, give them topics that do not overlap";
        return Some(format!("{names} reach the same topics, by {own:?} and {other:?}: {words}"));
    }
    // A token that may not send chooses no ids.
    if ![one, two].iter().all(|caller| caller.may(Role::Produce)) {
        return None;
    }
    let (own, other) = common(&one.id_patterns(), &two.id_patterns())?;
    let words = "one can take ids that the other needs; give them ids that do not overlap";
    Some(format!("{names} may choose the same ids of messages, by {own:?} and {other:?}: {words}"))
}

fn common(one: &[String], two: &[String]) -> Option<(String, String)> {
    let pairs = one.iter().flat_map(|own| two.iter().map(move |other| (own, other)));
    pairs
        .filter(|(own, other)| have_common_text(own, other))
        .map(|(own, other)| (own.clone(), other.clone()))
        .next()
}

/// Whether some text matches both patterns.
fn have_common_text(one: &str, two: &str) -> bool {
    const STAR: u8 = b'*';
    let (one, two) = (one.as_bytes(), two.as_bytes());
    // For each place in `two`: whether what follows there and what follows in `one` have a text in common. From the end of `one` back.
    let mut after: Vec<bool> =
        (0..=two.len()).map(|place| two[place..].iter().all(|byte| *byte == STAR)).collect();
    for byte in one.iter().rev() {
        let mut here = vec![false; two.len() + 1];
        for place in (0..=two.len()).rev() {
            let other = two.get(place);
            here[place] = if *byte == STAR || other == Some(&STAR) {
                after[place] || here.get(place + 1).is_some_and(|common| *common)
            } else {
                other == Some(byte) && after[place + 1]
            };
        }
        after = here;
    }
    after[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Token;

    #[test]
    fn patterns_overlap_if_a_text_matches_both() {
        for (one, two, want) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("a*", "b*", false),
            ("a*", "*b", true),
            ("*", "", true),
            ("*", "x", true),
            ("a*c", "ab*", true),
            ("a*c", "a*d", false),
            ("mail:*", "*-eu", true),
            ("mail:*", "mail-*", false),
            ("*a*", "*b*", true),
            ("a*b*c", "a*c", true),
            ("x*y", "y*x", false),
            ("", "a", false),
        ] {
            assert_eq!(have_common_text(one, two), want, "{one} and {two}");
            assert_eq!(have_common_text(two, one), want, "{two} and {one}");
        }
    }

    #[test]
    fn tokens_of_different_tenants_that_overlap_are_named() {
        let token = |name: &str, roles: &[Role], topics: &[&str]| Token::new(name, name, roles, topics);
        let overlaps = |tokens: &[Token]| Tokens::new(tokens.to_vec()).overlaps();
        let mail = token("mail", &[Role::Produce], &["mail"]);
        let eu = token("eu", &[Role::Produce], &["*-eu"]);
        let words = overlaps(&[mail.clone(), eu.clone()]);
        assert!(
            words[0].contains("the same ids") && words[0].contains("\"mail:*\" and \"*-eu\""),
            "{words:?}"
        );
        let mut apart = eu.clone();
        apart.caller.ids = vec!["eu-*".into()];
        assert_eq!(overlaps(&[mail.clone(), apart]), [""; 0]);
        let words = overlaps(&[eu, token("shop", &[Role::Operate], &["shop*"])]);
        assert!(words[0].contains("the same topics"), "{words:?}");
        // One tenant's, everybody's, and those who only look.
        let besides = [
            mail.clone(),
            token("mail-2", &[Role::Admin], &["mail"]),
            token("root", &[Role::Admin], &["*"]),
            token("look", &[Role::Read, Role::Consume], &["m*"]),
        ];
        assert_eq!(overlaps(&besides), [""; 0]);
        let many: Vec<_> =
            (0..6).map(|n| token(&format!("t{n}"), &[Role::Produce], &[&format!("*{n}*")])).collect();
        let words = overlaps(&many);
        assert_eq!(words.len(), NAMED_MAX + 1);
        assert!(words[NAMED_MAX].starts_with("5 more"), "{words:?}");
    }
}
