//! Sending a message in a transaction of one's own: it is there if the transaction is committed, and else it never was.
//!
//! What is put there is a plain row of `delay_message`, taken in by the next sweep of a node. Nothing that Duly counts is touched, so a
//! long transaction holds nobody up. In any other language the same is an `INSERT`.
//!
//! ```no_run
//! # async fn pay(pool: sqlx::MySqlPool, message: duly_core::StoredMessage) -> Result<(), sqlx::Error> {
//! let mut transaction = pool.begin().await?;
//! sqlx::query("INSERT INTO orders (id, state) VALUES (42, 'unpaid')").execute(&mut *transaction).await?;
//! duly_stores::sql::outbox::mysql(&mut *transaction, &message).await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

use duly_core::StoredMessage;
use sqlx::{Database, Encode, Executor, MySql, Postgres, QueryBuilder, Type};

use super::text::{kind_word, properties_text, retry_text};

/// Puts a message into the MySQL or MariaDB that the caller's transaction, or connection, is of. An id that is known there is refused as any
/// primary key that is taken.
pub async fn mysql<'e>(
    transaction: impl Executor<'e, Database = MySql>,
    message: &StoredMessage,
) -> Result<(), sqlx::Error> {
    insertion::<MySql>(message).build().execute(transaction).await.map(|_| ())
}

/// The same for PostgreSQL.
pub async fn postgres<'e>(
    transaction: impl Executor<'e, Database = Postgres>,
    message: &StoredMessage,
) -> Result<(), sqlx::Error> {
    insertion::<Postgres>(message).build().execute(transaction).await.map(|_| ())
}

fn insertion<DB>(message: &StoredMessage) -> QueryBuilder<DB>
where
    DB: Database,
    for<'v> &'v str: Encode<'v, DB> + Type<DB>,
    for<'v> Option<&'v str>: Encode<'v, DB> + Type<DB>,
    for<'v> &'v [u8]: Encode<'v, DB> + Type<DB>,
    i64: for<'v> Encode<'v, DB> + Type<DB>,
    Option<i64>: for<'v> Encode<'v, DB> + Type<DB>,
{
    let properties = properties_text(&message.properties);
    let retry = message.retry.as_deref().and_then(retry_text);
    let lateness = message.max_lateness.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
    let mut insert = QueryBuilder::new(
        "INSERT INTO delay_message (message_id, sink, topic, tag, message_key, properties, retry, content_kind, body, \
         deliver_time_ms, priority, max_lateness_ms) VALUES (",
    );
    let mut values = insert.separated(", ");
    values.push_bind(message.id.as_str());
    values.push_bind(message.sink.as_str());
    values.push_bind(message.topic.as_str());
    values.push_bind(message.tag.as_ref().map(|tag| tag.as_str()));
    values.push_bind(message.key.as_ref().map(|key| key.as_str()));
    values.push_bind(properties.as_deref());
    values.push_bind(retry.as_deref());
    values.push_bind(kind_word(message.body.kind()));
    values.push_bind(message.body.as_bytes());
    values.push_bind(message.due.as_millis() as i64);
    values.push_bind(i64::from(message.priority.get()));
    values.push_bind(lateness);
    insert.push(")");
    insert
}
