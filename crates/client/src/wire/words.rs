//! What a parser says of bad input, in the words of whoever wrote it.

/// A parser names Rust's types; readers know JSON's and TOML's.
const WORDS: [(&str, &str); 28] = [
    ("EOF while parsing ", "the JSON ends within "),
    ("invalid type: ", "found "),
    ("invalid value: ", "found "),
    ("invalid length ", "found a length of "),
    ("invalid digit found in string", "expected a whole number from 0"),
    ("cannot parse integer from empty string", "expected a whole number from 0, and there is nothing"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("provided string was not `true` or `false`", "expected true or false"),
    ("found floating point ", "found the number "),
    ("found integer ", "found the number "),
    ("found boolean ", "found "),
    ("found map", "found an object"),
    ("found sequence", "found an array"),
    ("found unit value", "found nothing"),
    ("expected a map", "expected an object"),
    ("expected map", "expected an object"),
    ("expected a sequence", "expected an array"),
    ("expected a boolean", "expected true or false"),
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected u16", "expected a whole number from 0 to 65535"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u64", "expected a whole number from 0"),
    ("expected usize", "expected a whole number from 0"),
    ("expected i64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("expected any valid JSON value", "expected a value"),
    ("expected ident", "expected true, false or null"),
];

/// The error of a parser, without its jargon.
pub fn plain(error: &str) -> String {
    let mut text = error.to_owned();
    for (jargon, word) in WORDS {
        text = text.replace(jargon, word);
    }
    for kind in ["struct", "enum", "tuple struct", "unit variant", "variant", "newtype struct"] {
        while let Some(begin) = text.find(&format!("expected {kind} ")) {
            let name = begin + "expected ".len() + kind.len() + 1;
            let end = text[name..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let end = end.map_or(text.len(), |end| name + end);
            text.replace_range(begin..end, "expected an object");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::wire::{BulkRequest, NewMessage, Receive};

    fn error<T: DeserializeOwned>(json: &str) -> String {
        plain(&serde_json::from_str::<T>(json).err().map(|error| error.to_string()).unwrap_or_default())
    }

    #[test]
    fn no_error_names_a_type_of_rust() {
        let errors = [
            error::<NewMessage>(r#"{"topic":"a","priority":300}"#),
            error::<NewMessage>(r#"{"topic":"a","priority":-1}"#),
            error::<NewMessage>(r#"{"topic":"a","priority":1.5}"#),
            error::<NewMessage>(r#"{"topic":"a","priority":"x"}"#),
            error::<NewMessage>(r#"{"topic":"a","retry":7}"#),
            error::<NewMessage>(r#"{"topic":"a","retry":{"attempts":"x"}}"#),
            error::<NewMessage>(r#"{"topic":"a","properties":[]}"#),
            error::<NewMessage>(r#"{"topic":{}}"#),
            error::<NewMessage>(r#"{"topic":"a","delay":true}"#),
            error::<NewMessage>(r#"{"topic":"a","deliver_at":[]}"#),
            error::<Receive>(r#"{"max":-1}"#),
            error::<Receive>("7"),
            error::<Receive>("tru"),
            error::<Receive>("nul"),
            error::<Receive>("{\"max\":fals}"),
            error::<BulkRequest>("{\"dry_run\":treu}"),
            error::<BulkRequest>(r#"{"ids":"a"}"#),
            error::<BulkRequest>(r#"{"filter":"a"}"#),
            error::<BulkRequest>(r#"{"dry_run":"yes"}"#),
        ];
        for text in errors {
            assert!(!text.is_empty());
            for jargon in
                ["ident", "u8", "u32", "usize", "struct", "map", "sequence", "boolean", "invalid type"]
            {
                assert!(!text.contains(jargon), "{text}");
            }
        }
        assert_eq!(
            error::<NewMessage>(r#"{"topic":"a","retry":7}"#),
            "found the number `7`, expected an object at line 1 column 22"
        );
    }
}
