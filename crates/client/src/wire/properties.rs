//! Properties: an object of texts, each name once.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use serde::{
    Deserializer,
    de::{self, MapAccess},
};

/// Reads properties; `null` is the same as none. A name that stands twice is refused, as a field is: one value would be lost.
pub(super) fn each_once<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Visitor;
    impl<'de> de::Visitor<'de> for Visitor {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of texts")
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut properties = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                match properties.entry(name) {
                    Entry::Vacant(entry) => _ = entry.insert(map.next_value()?),
                    Entry::Occupied(entry) => {
                        return Err(de::Error::custom(format!("duplicate field `{}`", entry.key())));
                    }
                }
            }
            Ok(properties)
        }
    }
    input.deserialize_any(Visitor)
}

#[cfg(test)]
mod tests {
    use crate::wire::NewMessage;

    #[test]
    fn a_name_stands_once_and_null_is_none() {
        let read = |properties: &str| {
            serde_json::from_str::<NewMessage>(&format!(r#"{{"topic":"a","properties":{properties}}}"#))
        };
        assert_eq!(read(r#"{"a":"1","b":"1"}"#).unwrap().properties.len(), 2);
        assert!(read("null").unwrap().properties.is_empty());
        let refused = read(r#"{"a":"1","b":"1","a":"2"}"#).unwrap_err().to_string();
        assert!(refused.starts_with("duplicate field `a`"), "{refused}");
        assert!(read("[]").is_err() && read(r#"{"a":1}"#).is_err());
    }
}
