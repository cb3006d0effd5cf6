//! Sending: one message, a batch, or without waiting for the reply.

mod message;
mod send_queue;

use duly_core::MessageId;
use redis::{Cmd, Pipeline, Value, aio::ConnectionLike};
use serde::Serialize;

use crate::{
    EntryId, Error, Priority, Streams, Unacknowledged, clock,
    entry::{DULY_ATTEMPT, DULY_DUE, DULY_ID},
    keys::Keys,
    settings::check_event,
};

pub use message::Message;
pub use send_queue::SendFuture;
pub(crate) use send_queue::SendQueue;

/// Entries appended with one call.
pub(crate) const BATCH_MAX: usize = 512;

impl Streams {
    /// Appends a value, as JSON, to the stream of the event, now. Returns the id of the entry.
    ///
    /// Two sends are two entries, also if the values are equal. If the connection breaks before the reply, the error is
    /// [`Unanswered`](Error::Unanswered): the entry may exist. A send that is repeated then appends a second entry: a
    /// stream knows no ids of messages. Give the [`Message`] an [id](Message::id), and both entries have the same
    /// `duly-id`, by which consumers recognise the copy. A Cluster connection repeats the call by itself, with the same
    /// `duly-id`. Only `delay_send_message` with an id is one message however often it is
    /// repeated.
    ///
    /// Cancel safety: dropped midway, the entry may exist or not. Only a [`Message`] with an [id](Message::id) can be
    /// recognised as the same.
    pub async fn send<T: Serialize + ?Sized>(&self, event: &str, value: &T) -> Result<EntryId, Error> {
        self.send_message(event, &Message::json(value)?).await
    }

    /// Appends raw fields instead of a JSON value.
    ///
    /// Cancel safety: dropped midway, the entry may exist or not. Only a [`Message`] with an [id](Message::id) can be
    /// recognised as the same.
    pub async fn send_fields<N, V>(
        &self,
        event: &str,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<EntryId, Error>
    where
        N: Into<String>,
        V: Into<Vec<u8>>,
    {
        self.send_message(event, &Message::fields(fields)?).await
    }

    /// Appends a [`Message`] with its properties and priority.
    ///
    /// Cancel safety: dropped midway, the entry may exist or not. Repeated with the same [id](Message::id), every copy
    /// has that id.
    pub async fn send_message(&self, event: &str, message: &Message) -> Result<EntryId, Error> {
        self.check_open()?;
        check_event(event)?;
        let AppendCommand { command, id } = self.append(event, message);
        let entry: String = command
            .query_async(&mut self.inner.link.clone())
            .await
            .map_err(|error| Error::from_link(&self.inner.link, &error).with_message_id(&id))?;
        Ok(EntryId::new(entry))
    }

    /// Sends a value without waiting: the returned future resolves to the id of the entry. Sends of this kind share
    /// calls to Redis and keep their order as long as Redis answers.
    ///
    /// Outside of a Tokio runtime it resolves to [`NoRuntime`](Error::NoRuntime). At most 10,000 sends are queued; a
    /// further one is sent when its future is awaited and there is room.
    ///
    /// Cancel safety: dropped before it resolves, the message may be sent or not.
    pub fn send_async<T: Serialize + ?Sized>(&self, event: &str, value: &T) -> SendFuture {
        match Message::json(value) {
            Ok(message) => self.send_message_async(event, &message),
            Err(error) => SendFuture::failed(error),
        }
    }

    /// Sends a [`Message`] without waiting.
    ///
    /// Cancel safety: dropped before it resolves, the message may be sent or not.
    pub fn send_message_async(&self, event: &str, message: &Message) -> SendFuture {
        match self.check_open().and_then(|()| check_event(event)) {
            Ok(()) => self.inner.send_queue.send(event, self.append(event, message), &self.inner.link),
            Err(error) => SendFuture::failed(error),
        }
    }

    /// Sends many values of one event, several hundred per call to Redis. It is no transaction: each has a result of
    /// its own, in order. Cancel safety: dropped midway, some of them may be sent.
    pub async fn send_batch<T: Serialize>(
        &self,
        event: &str,
        values: &[T],
    ) -> Result<Vec<Result<EntryId, Error>>, Error> {
        let messages: Vec<_> = values.iter().map(Message::json).collect::<Result<_, _>>()?;
        self.send_messages(event, &messages).await
    }

    /// Sends many [`Message`]s of one event.
    ///
    /// Cancel safety: dropped midway, any of them may be sent. Repeated with the same [ids](Message::id), every copy
    /// has its id.
    pub async fn send_messages(
        &self,
        event: &str,
        messages: &[Message],
    ) -> Result<Vec<Result<EntryId, Error>>, Error> {
        self.check_open()?;
        check_event(event)?;
        let mut answers = Vec::with_capacity(messages.len());
        for some in messages.chunks(BATCH_MAX) {
            let appends: Vec<_> = some.iter().map(|message| self.append(event, message)).collect();
            answers.extend(write(&mut self.inner.link.clone(), &appends).await);
        }
        Ok(answers)
    }

    /// The command that appends a message, with the fields that Duly's sink writes.
    fn append(&self, event: &str, message: &Message) -> AppendCommand {
        let mut command = redis::cmd("XADD");
        if message.priority == Priority::Normal {
            command.arg(event);
        } else {
            command.arg(Keys::new(event, &self.inner.address).stream(message.priority));
        }
        let trim = &self.inner.settings.trim;
        if let (Some(most), Unacknowledged::Drop) = (trim.max_len, trim.unacknowledged) {
            command.arg("MAXLEN").arg("~").arg(most);
        }
        command.arg("*");
        for (name, value) in &message.fields {
            command.arg(name).arg(value);
        }
        let id = message.id.clone().unwrap_or_else(|| self.inner.next_id());
        command.arg(DULY_ID).arg(id.as_str());
        command.arg(DULY_DUE).arg(clock::now_ms()).arg(DULY_ATTEMPT).arg(1);
        AppendCommand { command, id }
    }
}

/// The command that appends a message, and the id of the message.
struct AppendCommand {
    command: Cmd,
    id: MessageId,
}

/// Runs the commands in one pipeline. Returns the result of each.
async fn write(link: &mut redis_link::Link, appends: &[AppendCommand]) -> Vec<Result<EntryId, Error>> {
    let mut pipeline = Pipeline::with_capacity(appends.len());
    for append in appends {
        pipeline.add_command(append.command.clone());
    }
    let answers: Vec<_> = match link.req_packed_commands(&pipeline, 0, appends.len()).await {
        Ok(answers) => answers.into_iter().map(|value| answer(link, value)).collect(),
        Err(error) => appends.iter().map(|_| Err(Error::from_link(link, &error))).collect(),
    };
    let with_id = |(answer, append): (Result<_, Error>, &AppendCommand)| {
        answer.map_err(|error: Error| error.with_message_id(&append.id))
    };
    answers.into_iter().zip(appends).map(with_id).collect()
}

fn answer(link: &redis_link::Link, value: Value) -> Result<EntryId, Error> {
    let id = value.extract_error().and_then(|value| Ok(redis::from_redis_value::<String>(value)?));
    id.map(EntryId::new).map_err(|error| Error::from_link(link, &error))
}
