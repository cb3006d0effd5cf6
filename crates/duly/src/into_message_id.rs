//! What names a message.

use duly_core::{Invalid, MessageId};

use crate::Accepted;

/// What names a message: its id as text or as a [`MessageId`], or what [`Duly::send`](crate::Duly::send) gave.
pub trait IntoMessageId {
    /// The id, checked.
    fn id(&self) -> Result<MessageId, Invalid>;
}

impl IntoMessageId for MessageId {
    fn id(&self) -> Result<MessageId, Invalid> {
        Ok(self.clone())
    }
}

impl IntoMessageId for Accepted {
    fn id(&self) -> Result<MessageId, Invalid> {
        Ok(self.id.clone())
    }
}

impl IntoMessageId for str {
    fn id(&self) -> Result<MessageId, Invalid> {
        MessageId::parse(self)
    }
}

impl IntoMessageId for String {
    fn id(&self) -> Result<MessageId, Invalid> {
        MessageId::parse(self)
    }
}

impl<T: IntoMessageId + ?Sized> IntoMessageId for &T {
    fn id(&self) -> Result<MessageId, Invalid> {
        (**self).id()
    }
}

/// All of them, checked. `path` of an error says which one it is.
pub(crate) fn ids(named: impl IntoIterator<Item = impl IntoMessageId>) -> Result<Vec<MessageId>, Invalid> {
    let check = |(place, named): (usize, _)| {
        IntoMessageId::id(&named).map_err(|bad| Invalid::new(bad.code, format!("ids[{place}]"), bad.detail))
    };
    named.into_iter().enumerate().map(check).collect()
}
