//! Sending: one by one, many at once, or without waiting for the answer.

mod message;
mod pipe;

use duly_core::MessageId;
use redis::{Cmd, Pipeline, Value, aio::ConnectionLike};
use serde::Serialize;

use crate::{
    EntryId, Error, Priority, RedisMq, Unacknowledged, clock,
    entry::{DULY_ATTEMPT, DULY_DUE, DULY_ID},
    keys::Keys,
    settings::check_event,
};

pub use message::Message;
pub(crate) use pipe::Pipe;
pub use pipe::Sending;

/// The most entries that are written with one call.
pub(crate) const TOGETHER: usize = 512;

impl RedisMq {
    /// Appends the value, as JSON, to the stream that the event names, now. Answers where it stands there.
    ///
    /// Sent twice it is there twice, also if the two are equal. If the connection breaks before the answer comes, the error is
    /// [`Unanswered`](Error::Unanswered): it may be there. A cluster is then asked again by itself, so that it may be
    /// there twice; both have the same `duly-id`. Who repeats it gives the [`Message`] an [id](Message::id), which both have then.
    ///
    /// Cancel safety: dropped midway, it may stand in the stream or not. Only a [`Message`] with an [id](Message::id) can be repeated as
    /// the same one.
    pub async fn send<T: Serialize + ?Sized>(&self, event: &str, value: &T) -> Result<EntryId, Error> {
        self.send_message(event, &Message::json(value)?).await
    }

    /// Appends fields as they are, instead of a value as JSON.
    ///
    /// Cancel safety: dropped midway, it may stand in the stream or not. Only a [`Message`] with an [id](Message::id) can be repeated as
    /// the same one.
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

    /// The same for a [`Message`], which may have properties and a priority.
    ///
    /// Cancel safety: dropped midway, it may stand in the stream or not. Repeated with the same [id](Message::id), every copy has that
    /// id.
    pub async fn send_message(&self, event: &str, message: &Message) -> Result<EntryId, Error> {
        self.check_open()?;
        check_event(event)?;
        let Append { command, id } = self.append(event, message);
        let entry: String = command
            .query_async(&mut self.inner.link.clone())
            .await
            .map_err(|error| Error::over(&self.inner.link, &error).of_message(&id))?;
        Ok(EntryId::new(entry))
    }

    /// The same as [`send`](Self::send), and returns at once: what it returns resolves to the entry's id, or says why there is none.
    /// What is sent in this way shares calls to Redis, and keeps its order as long as Redis answers.
    ///
    /// Outside of a Tokio runtime the answer is [`NoRuntime`](Error::NoRuntime). **Dropped** before it is answered, it may be sent or not. So many that Redis has not answered yet are taken: 10,000. From there on one is sent
    /// only when its answer is awaited and there is room again.
    pub fn send_async<T: Serialize + ?Sized>(&self, event: &str, value: &T) -> Sending {
        match Message::json(value) {
            Ok(message) => self.send_message_async(event, &message),
            Err(error) => Sending::failed(error),
        }
    }

    /// The same for a [`Message`].
    pub fn send_message_async(&self, event: &str, message: &Message) -> Sending {
        match self.check_open().and_then(|()| check_event(event)) {
            Ok(()) => self.inner.pipe.send(event, self.append(event, message), &self.inner.link),
            Err(error) => Sending::failed(error),
        }
    }

    /// Sends many values of one event, some hundred with each call to Redis. It is no transaction: each has an answer of its own, in
    /// the same order. Cancel safety: dropped midway, some of them may be there.
    pub async fn send_batch<T: Serialize>(
        &self,
        event: &str,
        values: &[T],
    ) -> Result<Vec<Result<EntryId, Error>>, Error> {
        let messages: Vec<_> = values.iter().map(Message::json).collect::<Result<_, _>>()?;
        self.send_messages(event, &messages).await
    }

    /// The same for [`Message`]s.
    ///
    /// Cancel safety: dropped midway, any of them may stand in the stream. Repeated with the same [ids](Message::id), every copy has its
    /// id.
    pub async fn send_messages(
        &self,
        event: &str,
        messages: &[Message],
    ) -> Result<Vec<Result<EntryId, Error>>, Error> {
        self.check_open()?;
        check_event(event)?;
        let mut answers = Vec::with_capacity(messages.len());
        for some in messages.chunks(TOGETHER) {
            let appends: Vec<_> = some.iter().map(|message| self.append(event, message)).collect();
            answers.extend(write(&mut self.inner.link.clone(), &appends).await);
        }
        Ok(answers)
    }

    /// The fields are those that Duly's sink writes.
    fn append(&self, event: &str, message: &Message) -> Append {
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
        Append { command, id }
    }
}

/// What appends a message, and the id that it has.
struct Append {
    command: Cmd,
    id: MessageId,
}

/// Writes all, and says what became of each.
async fn write(link: &mut redis_link::Link, appends: &[Append]) -> Vec<Result<EntryId, Error>> {
    let mut pipeline = Pipeline::with_capacity(appends.len());
    for append in appends {
        pipeline.add_command(append.command.clone());
    }
    let answers: Vec<_> = match link.req_packed_commands(&pipeline, 0, appends.len()).await {
        Ok(answers) => answers.into_iter().map(|value| answer(link, value)).collect(),
        Err(error) => appends.iter().map(|_| Err(Error::over(link, &error))).collect(),
    };
    let named = |(answer, append): (Result<_, Error>, &Append)| {
        answer.map_err(|error: Error| error.of_message(&append.id))
    };
    answers.into_iter().zip(appends).map(named).collect()
}

fn answer(link: &redis_link::Link, value: Value) -> Result<EntryId, Error> {
    let id = value.extract_error().and_then(|value| Ok(redis::from_redis_value::<String>(value)?));
    id.map(EntryId::new).map_err(|error| Error::over(link, &error))
}
