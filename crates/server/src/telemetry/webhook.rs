//! Alerts, posted to somebody.

use std::sync::Arc;

use duly::{Body, Clock, Delivery, Invalid, MessageId, Sink, SinkName, Topic};
use duly_sinks::webhook::{AllowPrivate, WebhookConfig};
use tokio::sync::mpsc;

use crate::wire::Alert;

/// So many alerts wait to be posted; more are dropped. They are still in the log, in the metrics and in `/v1/stats`.
const WAITING_MAX: usize = 64;
/// To the webhook sink this topic means its address as it stands.
const AS_IT_STANDS: &str = "/";

/// Posts alerts one after the other, beside everything else: a slow receiver holds up nothing.
pub(super) struct Poster(mpsc::Sender<Alert>);

impl Poster {
    /// Posts to `url`. Ends with the poster.
    pub(super) fn start(url: &str, clock: &Arc<dyn Clock>) -> Result<Self, Invalid> {
        // Who may write the configuration may name any address.
        let allow_private = AllowPrivate::All;
        let config = WebhookConfig { url: Some(url.into()), allow_private, ..WebhookConfig::default() };
        let (sink, address) = (config.build(clock.clone())?, Topic::parse(AS_IT_STANDS)?);
        let (sender, mut alerts) = mpsc::channel::<Alert>(WAITING_MAX);
        let clock = clock.clone();
        tokio::spawn(async move {
            let mut serial = 0;
            while let Some(alert) = alerts.recv().await {
                serial += 1;
                let now = clock.now().wall();
                let id = MessageId::made(now, serial);
                let message = duly_core::Message::new(id, SinkName::queue(), address.clone(), now);
                if let Err(why) = post(&sink, message, &alert).await {
                    tracing::warn!(alert = alert.name, why, "an alert could not be posted");
                }
            }
        });
        Ok(Self(sender))
    }

    pub(super) fn post(&self, alert: &Alert) {
        if self.0.try_send(alert.clone()).is_err() {
            tracing::warn!(alert = alert.name, "too many alerts wait to be posted; this one is not");
        }
    }
}

/// Posts once, within the sink's own time. What nobody takes is in the log all the same, and would be stale by the next
/// try.
async fn post(sink: &dyn Sink, mut message: duly_core::Message, alert: &Alert) -> Result<(), String> {
    message.body = Body::json(alert).map_err(|error| error.to_string())?;
    let answers = sink.deliver(&[Delivery::new(message, 1)]).await;
    answers.into_iter().try_for_each(|answer| answer.map(drop).map_err(|error| error.to_string()))
}
