//! From a wire message to a message of the library.

use duly::{Message, SinkName};

use super::{app::App, caller::Who, fault::ApiResult, trace::Trace};
use crate::{draft::draft, wire::NewMessage};

/// Sink and topic of a message, kept for the response.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) sink: String,
    pub(super) topic: String,
}

impl Target {
    /// Refuses a new topic of the built-in queue beyond the limit of topics.
    pub(super) async fn admit_topic(&self, app: &App, who: &Who) -> ApiResult<()> {
        if self.sink == SinkName::QUEUE {
            app.topics.admit(&app.duly, who, &self.topic).await
        } else {
            Ok(())
        }
    }
}

/// Converts the message.
pub(super) fn message(mut new: NewMessage, trace: &Trace) -> ApiResult<(Target, Message)> {
    trace.join(&mut new.properties);
    let target = Target { sink: new.sink_name().to_owned(), topic: new.topic.clone() };
    Ok((target, draft(new)?))
}
