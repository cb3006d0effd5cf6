//! Arguments that name a message.

use duly_core::{Invalid, MessageId};

use crate::Accepted;

/// A message id: as text, as a [`MessageId`], or what [`Duly::send`](crate::Duly::send) returned.
pub trait IntoMessageId {
    /// Validates and returns the id.
    fn to_message_id(&self) -> Result<MessageId, Invalid>;
}

impl IntoMessageId for MessageId {
    fn to_message_id(&self) -> Result<MessageId, Invalid> {
        Ok(self.clone())
    }
}

impl IntoMessageId for Accepted {
    fn to_message_id(&self) -> Result<MessageId, Invalid> {
        Ok(self.id.clone())
    }
}

impl IntoMessageId for str {
    fn to_message_id(&self) -> Result<MessageId, Invalid> {
        MessageId::parse(self)
    }
}

impl IntoMessageId for String {
    fn to_message_id(&self) -> Result<MessageId, Invalid> {
        MessageId::parse(self)
    }
}

impl<T: IntoMessageId + ?Sized> IntoMessageId for &T {
    fn to_message_id(&self) -> Result<MessageId, Invalid> {
        (**self).to_message_id()
    }
}

/// Validates all ids. The `path` of an error says which one is invalid.
pub(crate) fn parse_all(
    ids: impl IntoIterator<Item = impl IntoMessageId>,
) -> Result<Vec<MessageId>, Invalid> {
    let check = |(index, id): (usize, _)| {
        IntoMessageId::to_message_id(&id)
            .map_err(|bad| Invalid::new(bad.code, format!("ids[{index}]"), bad.detail))
    };
    ids.into_iter().enumerate().map(check).collect()
}
