//! JSON values as they were written.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Reads a field that is there. Its value may be `null`, which is not the same as no field.
pub(super) fn present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(input).map(Some)
}

#[cfg(test)]
mod tests {
    use crate::wire::NewMessage;

    #[test]
    fn null_is_a_value_and_no_field_is_none() {
        let json = |text: &str| {
            serde_json::from_str::<NewMessage>(text).unwrap().json.map(|json| json.get().to_owned())
        };
        assert_eq!(json(r#"{"topic":"a","json":null}"#).as_deref(), Some("null"));
        assert_eq!(json(r#"{"topic":"a"}"#), None);
    }
}
