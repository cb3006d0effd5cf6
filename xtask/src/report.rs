//! What the output of a test program says about its tests.

/// The names of the tests that failed: the list at the end of the program's output. Empty if the program did not come to its end: one that
/// died has not said which test is to blame.
pub(crate) fn failed_tests(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().collect();
    if !lines.iter().any(|line| line.starts_with("test result: FAILED")) {
        return Vec::new();
    }
    let Some(list) = lines.iter().rposition(|line| *line == "failures:") else { return Vec::new() };
    lines[list + 1..].iter().map_while(|line| line.strip_prefix("    ")).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "test a::b ... FAILED\ntest c ... ok\n\nfailures:\n\n---- a::b stdout ----\n    no\n\n\nfailures:\n    a::b\n    d\n\ntest result: FAILED. 1 passed; 2 failed\n";

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(failed_tests(TWO), ["a::b", "d"]);
    }

    #[test]
    fn a_program_that_passed_or_died_names_none() {
        assert!(failed_tests("test a ... ok\ntest result: ok. 1 passed").is_empty());
        assert!(failed_tests("test a::b ... FAILED\ntest c ... ").is_empty());
        assert!(failed_tests("").is_empty());
    }
}
