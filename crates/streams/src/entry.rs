//! Entries of a stream.

use std::fmt;

use serde::de::DeserializeOwned;

/// The id of an entry in its stream, such as `1794852900000-0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntryId(String);

impl EntryId {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for EntryId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<String> for EntryId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for EntryId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The fields of an entry that every event has.
pub(crate) const BODY: &str = "body";
pub(crate) const CONTENT_TYPE: &str = "content-type";
pub(crate) const JSON: &str = "application/json";
pub(crate) const DULY_ID: &str = "duly-id";
pub(crate) const DULY_DUE: &str = "duly-due";
pub(crate) const DULY_ATTEMPT: &str = "duly-attempt";
/// The group that a replayed entry is for.
pub(crate) const DULY_GROUP: &str = "duly-group";
/// Reserved prefix of property names.
pub(crate) const RESERVED: &str = "duly-";

/// An entry of a stream, and the value in it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Entry<T> {
    /// Its id in the stream.
    pub id: EntryId,
    /// The decoded value.
    pub value: T,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) attempt: u32,
}

/// An entry before it is decoded.
pub(crate) type Raw = Entry<()>;

impl<T> Entry<T> {
    /// The raw bytes of a field.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    /// A field as text, if it is UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.field(name)?).ok()
    }

    /// All fields, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// The id of the message, the same on every copy.
    pub fn message_id(&self) -> Option<&str> {
        self.text(DULY_ID)
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Decodes the value: from the field `body` as JSON, or, without it, from all fields as text. The error says why it
    /// does not decode.
    pub fn json<V: DeserializeOwned>(&self) -> Result<V, String> {
        if let Some(body) = self.field(BODY) {
            return serde_json::from_slice(body).map_err(|why| why.to_string());
        }
        let own = |(name, _): &&(Vec<u8>, Vec<u8>)| !name.starts_with(RESERVED.as_bytes());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let map =
            self.fields.iter().filter(own).map(|(name, value)| (text(name), text(value).into())).collect();
        serde_json::from_value(serde_json::Value::Object(map))
            .map_err(|why| format!("it has no field body, and its fields are no such value: {why}"))
    }
}

impl Raw {
    /// From names and values in turn.
    pub(crate) fn new(id: String, flat: Vec<Vec<u8>>) -> Self {
        let mut flat = flat.into_iter();
        let fields = std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect();
        Self { id: EntryId::new(id), value: (), fields, attempt: 1 }
    }

    /// Decodes the value. The error returns the entry and the reason.
    pub(crate) fn decode<T: DeserializeOwned>(self) -> Result<Entry<T>, (Self, String)> {
        match self.json() {
            Ok(value) => Ok(Entry { id: self.id, value, fields: self.fields, attempt: self.attempt }),
            Err(why) => Err((self, why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn raw(fields: &[&str]) -> Raw {
        Raw::new("1-0".into(), fields.iter().map(|field| field.as_bytes().to_vec()).collect())
    }

    #[test]
    fn a_value_is_read_from_the_body() {
        let entry: Entry<Vec<u8>> = raw(&["body", "[1,2]", "duly-id", "m1"]).decode().unwrap();
        assert_eq!((entry.value.as_slice(), entry.message_id()), (&[1, 2][..], Some("m1")));
        assert_eq!((entry.fields().count(), entry.attempt()), (2, 1));
    }

    #[test]
    fn a_field_map_is_read_as_a_map() {
        let entry: Entry<BTreeMap<String, String>> =
            raw(&["city", "Bonn", "duly-id", "m1"]).decode().unwrap();
        assert_eq!(entry.value.into_iter().collect::<Vec<_>>(), [("city".into(), "Bonn".into())]);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        assert!(raw(&["other", "1"]).decode::<u8>().unwrap_err().1.contains("no field body"));
        assert!(raw(&["body", "{"]).decode::<u8>().is_err());
        assert!(raw(&["body", "300"]).decode::<u8>().is_err());
    }
}
