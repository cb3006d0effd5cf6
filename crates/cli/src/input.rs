//! Parses what people type.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Read, Write},
};

use serde::Deserialize;

use super::{Failure, Output, selection::Ids};
use duly_client::wire::{Delay, Moment};

/// A delay: `15m`, `1h30m`, `PT15M` or whole milliseconds.
pub(crate) fn delay(text: &str) -> Result<Delay, String> {
    duly::parse_delay(text).map_err(|fault| fault.detail)?;
    Ok(Delay::Text(text.trim().to_owned()))
}

/// A time: RFC 3339 or milliseconds since 1970.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    let moment = Moment::Text(text.trim().to_owned());
    moment.time("it").map_err(|fault| fault.detail)?;
    Ok(text.trim().parse().map_or(moment, Moment::Millis))
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

/// The properties by key. A key that stands twice is refused: one of its values would be lost.
pub(crate) fn each_once(properties: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Failure> {
    let mut each = BTreeMap::new();
    for (key, value) in properties {
        if each.contains_key(&key) {
            return Err(Failure::usage(format!("the property {key:?} is given twice; nothing was sent")));
        }
        each.insert(key, value);
    }
    Ok(each)
}

/// The arguments; a lone `-` stands for the lines of stdin.
pub(crate) fn lines(arguments: &[String]) -> Result<Vec<String>, Failure> {
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

/// The arguments; a lone `-` stands for what stdin says: ids, one a line, or JSON as `duly ls` and `duly get` write it.
pub(crate) fn listed(arguments: &[String]) -> Result<Ids, Failure> {
    let mut ids = Ids::default();
    for argument in arguments {
        if argument == "-" {
            let text = whole_stdin()?;
            let text = std::str::from_utf8(&text)
                .map_err(|e| Failure::failed(format!("stdin holds no ids: it is no text ({e})")))?;
            read_ids(text, &mut ids)?;
        } else if argument.trim().is_empty() {
            return Err(Failure::usage("an id is empty: is a variable of the shell not set?"));
        } else {
            ids.all.push(argument.clone());
        }
    }
    Ok(ids)
}

/// Input from a pipe: a page of messages, a message, or an id.
#[derive(Deserialize)]
#[serde(untagged)]
enum Piped {
    Page { messages: Vec<WithId>, cursor: Option<String> },
    One(WithId),
    Id(String),
    Several(Vec<Piped>),
}

#[derive(Deserialize)]
struct WithId {
    id: String,
}

impl Piped {
    fn add_to(self, ids: &mut Ids) {
        match self {
            Self::Page { messages, cursor } => {
                ids.all.extend(messages.into_iter().map(|message| message.id));
                ids.is_cut |= cursor.is_some();
            }
            Self::One(WithId { id }) | Self::Id(id) => ids.all.push(id),
            Self::Several(all) => all.into_iter().for_each(|each| each.add_to(ids)),
        }
    }
}

fn read_ids(text: &str, ids: &mut Ids) -> Result<(), Failure> {
    // No id begins like that.
    if text.trim_start().starts_with(['{', '[', '"']) {
        for piped in serde_json::Deserializer::from_str(text).into_iter::<Piped>() {
            piped.map_err(|e| no_ids(&e))?.add_to(ids);
        }
        return Ok(());
    }
    ids.all.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
    Ok(())
}

fn no_ids(error: &serde_json::Error) -> Failure {
    // JSON of another shape: there the error is in words of the program.
    let why = if error.is_data() { String::new() } else { format!(" ({error})") };
    Failure::failed(format!(
        "stdin holds JSON that is neither a list of messages, as `duly ls -o json` writes it, nor ids{why}; nothing was done"
    ))
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
        assert!(
            moment("1767225600").unwrap_err().contains("send 1767225600000"),
            "seconds are no milliseconds"
        );
        assert!(delay("1 month").unwrap_err().contains("not a delay"));
    }

    #[test]
    fn ids_come_as_lines_or_as_the_json_of_a_list_which_may_be_cut() {
        for (text, expected, is_cut) in [
            ("a\n\n b \r\n", vec!["a", "b"], false),
            (r#"{"messages":[{"id":"a","topic":"t"},{"id":"b"}],"cursor":"x"}"#, vec!["a", "b"], true),
            (r#"{"messages":[{"id":"a"}]}"#, vec!["a"], false),
            ("{\"id\":\"a\"}\n{\"id\":\"b\"}\n\"c\"", vec!["a", "b", "c"], false),
            (r#"["a", {"id": "b"}]"#, vec!["a", "b"], false),
        ] {
            let mut ids = Ids::default();
            read_ids(text, &mut ids).unwrap();
            assert_eq!(
                (ids.all, ids.is_cut),
                (expected.into_iter().map(String::from).collect(), is_cut),
                "{text}"
            );
        }
        for text in [r#"{"topic":"t"}"#, r#"{"messages":[{"id":5}]}"#, "[5]"] {
            let words = read_ids(text, &mut Ids::default()).unwrap_err().words;
            assert!(words.contains("neither a list of messages") && !words.contains("enum"), "{words}");
        }
        let words = read_ids(r#"{"id":"a""#, &mut Ids::default()).unwrap_err().words;
        assert!(words.contains("EOF") && words.contains("line 1"), "where it is cut: {words}");
    }

    #[test]
    fn a_property_has_a_key_and_keeps_later_equal_signs() {
        assert_eq!(property("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(property("a").is_err() && property("=b").is_err());
        let given = |keys: [&str; 2]| each_once(keys.map(|key| (key.to_owned(), "1".to_owned())).into());
        assert_eq!(given(["a", "b"]).unwrap_or_default().len(), 2);
        assert!(given(["a", "a"]).is_err(), "of a key given twice one value would be lost");
    }
}
