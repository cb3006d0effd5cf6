//! Text that is kept although a part of it is no text.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

/// Reads text, or none. Whoever reports an error may have cut it in the middle of a character, as programs do that count in UTF-16: what is
/// left of the character is kept as U+FFFD, because the report is worth more than that character.
pub(super) fn lossy<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Lossy>::deserialize(input)?.map(|text| text.0))
}

struct Lossy(String);

impl<'de> Deserialize<'de> for Lossy {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Lossy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Lossy, E> {
                Ok(Lossy(text.to_owned()))
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Lossy, E> {
                Ok(Lossy(replaced(bytes)))
            }
        }
        // Asked for text, the parser refuses half a surrogate pair; asked for bytes, it gives its three bytes.
        input.deserialize_bytes(Text)
    }
}

/// The text of these bytes, with one U+FFFD for each half of a surrogate pair.
fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        // The other two bytes of a half are invalid by themselves, and come one by one.
        let is_rest = matches!(chunk.invalid(), [0x80..=0xbf])
            && chunk.valid().is_empty()
            && text.ends_with('\u{fffd}');
        if !chunk.invalid().is_empty() && !is_rest {
            text.push('\u{fffd}');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::wire::Nack;

    fn error(json: &str) -> Option<String> {
        let nack: Nack = serde_json::from_str(&format!(r#"{{"receipts":[],"error":{json}}}"#)).unwrap();
        nack.error
    }

    #[test]
    fn half_a_character_of_a_report_is_replaced() {
        for (json, text) in [
            (r#""plain""#, "plain"),
            (r#""\u00e4 \ud83d\ude00""#, "\u{e4} \u{1f600}"),
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""\ude00 cut""#, "\u{fffd} cut"),
            (r#""\ud83d\n\ud83d""#, "\u{fffd}\n\u{fffd}"),
        ] {
            assert_eq!(error(json).as_deref(), Some(text), "{json}");
        }
        assert_eq!(error("null"), None);
    }

    #[test]
    fn a_report_is_text() {
        for json in ["7", "[1]", "{}", "true"] {
            let nack = serde_json::from_str::<Nack>(&format!(r#"{{"receipts":[],"error":{json}}}"#));
            assert!(nack.unwrap_err().to_string().contains("expected a string"), "{json}");
        }
    }
}
