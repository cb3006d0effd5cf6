//! What people type, read once.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use super::{Failure, Output};
use crate::wire::{Delay, Moment};

/// A delay: `15m`, `1h30m`, `PT15M` or whole milliseconds.
pub(crate) fn delay(text: &str) -> Result<Delay, String> {
    duly::parse_delay(text).map_err(|fault| fault.detail)?;
    Ok(Delay::Text(text.trim().to_owned()))
}

/// A time: RFC 3339 or milliseconds since 1970.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    duly::parse_time(text).map_err(|fault| fault.detail)?;
    let text = text.trim();
    Ok(text.parse().map_or_else(|_| Moment::Text(text.to_owned()), Moment::Millis))
}

/// A span for the command line's own use.
pub(crate) fn span(text: &str) -> Result<std::time::Duration, String> {
    duly::parse_delay(text).map_err(|fault| fault.detail)
}

/// `key=value`.
pub(crate) fn property(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    if key.is_empty() {
        return Err("the key is empty: write it as key=value".into());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// The arguments; a lone `-` stands for the lines of stdin.
pub(crate) fn listed(arguments: &[String]) -> Result<Vec<String>, Failure> {
    let mut all = Vec::with_capacity(arguments.len());
    for argument in arguments {
        if argument != "-" {
            all.push(argument.clone());
            continue;
        }
        for line in io::stdin().lock().lines() {
            let line = line.map_err(|e| Failure::failed(format!("cannot read stdin: {e}")))?;
            if !line.trim().is_empty() {
                all.push(line.trim().to_owned());
            }
        }
    }
    Ok(all)
}

/// All of stdin.
pub(crate) fn whole_stdin() -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut all)
        .map_err(|e| Failure::failed(format!("cannot read stdin: {e}")))?;
    Ok(all)
}

/// Asks a terminal; without one, `yes` must have been said before.
pub(crate) fn confirm(out: &Output, yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(format!("{question} Say so with --yes; nothing was done")));
    }
    let _ = write!(io::stderr(), "{} [y/N] ", out.tint_words(super::Tint::Yellow, question));
    let mut answer = String::new();
    io::stdin()
        .read_line(&mut answer)
        .map_err(|e| Failure::failed(format!("cannot read the answer: {e}")))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::failed("nothing was done"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_digits_travels_as_a_number() {
        assert_eq!(moment("1794852900000").unwrap(), Moment::Millis(1_794_852_900_000));
        assert_eq!(moment(" 2026-11-15T18:15:00Z ").unwrap(), Moment::Text("2026-11-15T18:15:00Z".into()));
        assert!(moment("tomorrow").unwrap_err().contains("not a time"));
        assert!(delay("1 month").unwrap_err().contains("not a delay"));
    }

    #[test]
    fn a_property_has_a_key_and_keeps_later_equal_signs() {
        assert_eq!(property("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(property("a").is_err() && property("=b").is_err());
    }
}
