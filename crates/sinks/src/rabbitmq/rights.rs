//! Whether the user may publish, asked without a message that anybody gets.

use lapin::{BasicProperties, options::BasicPublishOptions};

use super::{failure::Cause, wire::Wire};
use crate::Remark;

/// A message in a transaction that is rolled back is checked by the broker and reaches no queue.
pub(super) async fn ask(wire: &Wire, exchange: &str) -> Option<Remark> {
    let channel = wire.plain_channel().await.ok()?;
    let asked = async {
        channel.tx_select().await?;
        let options = BasicPublishOptions::default();
        let sent =
            channel.basic_publish(exchange.into(), "duly".into(), options, b"", BasicProperties::default());
        sent.await?;
        channel.tx_rollback().await
    };
    let mut error = asked.await.err()?;
    if Cause::of(&error) == Cause::Other {
        // The channel may only know that it is closed.
        error = wire.channel_error().await?;
    }
    let (detail, remedy) = match (Cause::of(&error), exchange) {
        (Cause::Exchange(_), "") => (
            format!(
                "this user may not publish to queues by their names, so topics without an exchange are denied: {error}"
            ),
            "give the user the write permission on amq.default, or name an exchange in every topic",
        ),
        (Cause::Exchange(_), exchange) => (
            format!("this user may not publish to the exchange {exchange:?}: {error}"),
            "give the user the write permission on it",
        ),
        // A routing key of no meaning may be forbidden where those of messages are not.
        _ => return None,
    };
    Some(Remark { detail, remedy: remedy.into() })
}
