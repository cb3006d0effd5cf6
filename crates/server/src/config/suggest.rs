//! Did you mean …?

/// ` (did you mean x?)` if one of `known` is near what was written, else nothing.
pub(super) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let written = written.to_ascii_lowercase().replace('-', "_");
    let near = known
        .into_iter()
        .map(|word| (distance(&written, &word.to_ascii_lowercase()), word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .min();
    near.map(|(_, word)| format!(" (did you mean {word}?)")).unwrap_or_default()
}

/// How many characters must be changed, added, removed or swapped with the next to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_suggested_and_what_is_far_is_not() {
        let known = ["lease", "retention", "retention_max", "kind"];
        for (written, word) in [
            ("laese", "lease"),
            ("leas", "lease"),
            ("Kind", "kind"),
            ("retention-max", "retention_max"),
            ("retentoin", "retention"),
        ] {
            assert_eq!(did_you_mean(written, known), format!(" (did you mean {word}?)"));
        }
        assert_eq!(did_you_mean("colour", known), "");
        assert_eq!(did_you_mean("x", []), "");
    }
}
