//! What stands in a stream.

use std::fmt;

use serde::de::DeserializeOwned;

/// Where an entry stands in its stream, as Redis names it: `1794852900000-0`.
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

/// The fields of an entry that every event has.
pub(crate) const BODY: &str = "body";
pub(crate) const CONTENT_TYPE: &str = "content-type";
pub(crate) const JSON: &str = "application/json";
pub(crate) const DULY_ID: &str = "duly-id";
pub(crate) const DULY_DUE: &str = "duly-due";
pub(crate) const DULY_ATTEMPT: &str = "duly-attempt";

/// An entry of a stream, and the value in it.
#[derive(Debug, Clone)]
pub struct Entry<T> {
    /// Where it stands in its stream.
    pub id: EntryId,
    /// What was sent.
    pub value: T,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An entry as it is read, before anybody knows what is in it.
pub(crate) type Raw = Entry<()>;

impl<T> Entry<T> {
    /// A field by its name, as it stands there.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    /// All fields, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// The message's own id, the same on every copy that there may ever be.
    pub fn message_id(&self) -> Option<&str> {
        std::str::from_utf8(self.field(DULY_ID)?).ok()
    }
}

impl Raw {
    /// Fields and values in turn.
    pub(crate) fn new(id: String, flat: Vec<Vec<u8>>) -> Self {
        let mut flat = flat.into_iter();
        let fields = std::iter::from_fn(|| Some((flat.next()?, flat.next()?))).collect();
        Self { id: EntryId::new(id), value: (), fields }
    }

    /// With the value that its body holds; or why it holds none.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<Entry<T>, String> {
        let body = self.field(BODY).ok_or("it has no field body")?;
        let value = serde_json::from_slice(body).map_err(|why| why.to_string())?;
        Ok(Entry { id: self.id.clone(), value, fields: self.fields.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(fields: &[&str]) -> Raw {
        Raw::new("1-0".into(), fields.iter().map(|field| field.as_bytes().to_vec()).collect())
    }

    #[test]
    fn a_value_is_read_from_the_body() {
        let entry: Entry<Vec<u8>> = raw(&["body", "[1,2]", "duly-id", "m1"]).decode().unwrap();
        assert_eq!((entry.value.as_slice(), entry.message_id()), (&[1, 2][..], Some("m1")));
        assert_eq!(entry.fields().count(), 2);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        assert!(raw(&["other", "1"]).decode::<u8>().unwrap_err().contains("no field body"));
        assert!(raw(&["body", "{"]).decode::<u8>().is_err());
        assert!(raw(&["body", "300"]).decode::<u8>().is_err());
    }
}
