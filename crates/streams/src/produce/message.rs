//! Messages.

use duly_core::MessageId;
use serde::Serialize;

use crate::{
    Error, Priority,
    entry::{BODY, CONTENT_TYPE, JSON, RESERVED},
};

/// A message to send: a JSON value or raw fields, with properties and a priority.
///
/// ```
/// use duly_streams::{Message, Priority};
///
/// let message = Message::json(&42)?.property("customer", "7")?.priority(Priority::High);
/// # Ok::<_, duly_streams::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Message {
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) priority: Priority,
    pub(crate) id: Option<MessageId>,
}

impl Message {
    /// A JSON value, in the field `body`.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        let body = serde_json::to_vec(value).map_err(Error::encode)?;
        let fields = vec![(BODY.into(), body), (CONTENT_TYPE.into(), JSON.into())];
        Ok(Self { fields, priority: Priority::Normal, id: None })
    }

    /// Raw fields. Names that begin with `duly-` are reserved.
    pub fn fields<N, V>(fields: impl IntoIterator<Item = (N, V)>) -> Result<Self, Error>
    where
        N: Into<String>,
        V: Into<Vec<u8>>,
    {
        let mut message = Self { fields: Vec::new(), priority: Priority::Normal, id: None };
        for (name, value) in fields {
            message = message.property(name, value)?;
        }
        if message.fields.is_empty() {
            return Err(Error::Invalid("a message has at least one field".into()));
        }
        Ok(message)
    }

    /// Adds a field. Names that begin with `duly-` are reserved, and a name cannot be used twice.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Result<Self, Error> {
        let name = name.into();
        if name.starts_with(RESERVED) || self.fields.iter().any(|(known, _)| *known == name) {
            return Err(Error::Invalid(format!("a field cannot be called {name:?}: that name is taken")));
        }
        self.fields.push((name, value.into()));
        Ok(self)
    }

    /// Sets its id, 1 to 128 of `A-Za-z0-9._:-`, which handlers get by [`Entry::message_id`](crate::Entry::message_id).
    /// Without it, each send makes one ([`Streams::new_id`](crate::Streams::new_id)).
    ///
    /// To repeat a send that was not answered, use the same id: a delayed message is then the same one, and every copy
    /// of a message sent now has the same id.
    pub fn id(mut self, id: impl Into<String>) -> Result<Self, Error> {
        let id = MessageId::parse(&id.into()).map_err(|bad| Error::Invalid(bad.to_string()))?;
        self.id = Some(id);
        Ok(self)
    }

    /// Sets its priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_taken_are_refused() {
        assert!(Message::json(&1).unwrap().property("body", "2").is_err());
        assert!(Message::json(&1).unwrap().property("duly-id", "2").is_err());
        assert!(Message::fields([("duly-due", "1")]).is_err());
        assert!(Message::fields(Vec::<(String, String)>::new()).is_err());
        assert!(Message::json(&1).unwrap().id("no spaces").is_err());
        assert_eq!(Message::fields([("a", "1"), ("b", "2")]).unwrap().fields.len(), 2);
    }
}
