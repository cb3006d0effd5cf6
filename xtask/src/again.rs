//! The tests, and in CI the few that failed once more by themselves.
//!
//! They start real servers, dozens of them on two processors that others may be using, and one in two thousand may meet a pause that
//! it was not written for. A change is not held up by that; but what passes only alone is named in the end, and is to be mended.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    thread,
};

use crate::step::{Failure, Steps, in_ci};

/// With more failures than this, it is not bad luck.
const CHANCES: usize = 3;

/// Runs what `command` makes with words for the tests themselves.
pub(crate) fn run(steps: &Steps, command: impl Fn(&[&str]) -> Command) -> Result<(), Failure> {
    if !in_ci() {
        return steps.run("tests", &mut command(&[]));
    }
    let mut told = Told::default();
    let ended = steps.run_with("tests", &mut command(&[]), |command| {
        let (status, heard) = listen(command)?;
        told = heard;
        Ok(status)
    });
    let (Err(Failure::Step { .. }), true) = (&ended, told.is_bad_luck()) else { return ended };
    let names: Vec<&str> = told.failed.iter().map(String::as_str).collect();
    let words = [&["--exact", "--test-threads=1"], &names[..]].concat();
    steps.run("tests that failed, alone", &mut command(&words))?;
    for name in names {
        eprintln!("\nSHAKY {name}: failed among the others and passed alone; it is to be mended");
    }
    Ok(())
}

/// What a run of the tests told.
#[derive(Default)]
struct Told {
    /// The names of tests that failed.
    failed: BTreeSet<String>,
    /// Programs that ended with failed tests.
    ended: usize,
    /// Programs that failed, however they did.
    broken: usize,
}

impl Told {
    /// Few tests failed, and nothing else: no program died without saying which test was to blame.
    fn is_bad_luck(&self) -> bool {
        (1..=CHANCES).contains(&self.failed.len()) && self.ended == self.broken
    }

    fn hear(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failed.insert(name.trim_end_matches(" - should panic").into());
        }
        self.ended += usize::from(line.starts_with("test result: FAILED"));
        // Cargo lists them in the end: `-p package --test name`
        self.broken += usize::from(line.trim_start().starts_with("`-p "));
    }
}

/// Runs it, shows what it writes, and hears what it tells.
fn listen(command: &mut Command) -> io::Result<(std::process::ExitStatus, Told)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, words) = (child.stdout.take(), child.stderr.take());
    let other = thread::spawn(move || words.map(|words| follow(words, io::stderr())));
    let mut told = Told::default();
    let lines = out.map(|out| follow(out, io::stdout())).unwrap_or_default();
    let more = other.join().ok().flatten().unwrap_or_default();
    lines.iter().chain(&more).for_each(|line| told.hear(line));
    Ok((child.wait()?, told))
}

/// Shows all lines and keeps those that tell of failures.
fn follow(from: impl Read, mut to: impl Write) -> Vec<String> {
    let mut kept = Vec::new();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        // Nobody may be looking any more.
        let _ = writeln!(to, "{line}");
        if line.contains("FAILED") || line.trim_start().starts_with("`-p ") {
            kept.push(line);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &str) -> Told {
        let mut told = Told::default();
        lines.lines().for_each(|line| told.hear(line));
        told
    }

    const ONE: &str = "test a::b ... FAILED\ntest result: FAILED. 1 passed; 1 failed\n    `-p duly --test x`";

    #[test]
    fn one_failed_test_has_another_chance() {
        let told = told(ONE);
        assert!(told.is_bad_luck());
        assert_eq!(told.failed.iter().collect::<Vec<_>>(), ["a::b"]);
    }

    #[test]
    fn many_have_none_nor_has_a_program_that_died() {
        let lines = (0..5).map(|n| format!("test t{n} ... FAILED\n")).collect::<String>();
        assert!(!told(&format!("{lines}test result: FAILED\n    `-p duly --lib`")).is_bad_luck());
        assert!(!told(&format!("{ONE}\n    `-p duly --test died`")).is_bad_luck());
        assert!(!told("    `-p duly --test died`").is_bad_luck());
    }
}
