//! Alerts, posted to somebody.

use std::{sync::Arc, time::Duration};

use duly::{Body, Clock, Delivery, Invalid, MessageId, Sink, SinkError, SinkErrorKind, SinkName, Topic};
use duly_sinks::webhook::{AllowPrivate, WebhookConfig};
use tokio::sync::mpsc;

use crate::wire::Alert;

/// So many alerts wait to be posted; more are dropped. They are still in the log, in the metrics and in `/v1/stats`.
const WAITING_MAX: usize = 64;
/// To the webhook sink this topic means its address as it stands.
const AS_IT_STANDS: &str = "/";
/// An alert is posted so often until somebody takes it: about two minutes. Then the next one is worth more.
const ATTEMPTS_MAX: u32 = 7;
/// The wait after the first failure; it doubles up to the longest.
const WAIT_MIN: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(30);

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
                if let Err(why) = post(&sink, &*clock, message, &alert).await {
                    tracing::warn!(alert = alert.name, why, "alert not posted");
                }
            }
        });
        Ok(Self(sender))
    }

    pub(super) fn post(&self, alert: &Alert) {
        if self.0.try_send(alert.clone()).is_err() {
            tracing::warn!(alert = alert.name, "alert not posted: too many wait");
        }
    }
}

/// Posts until it is taken, refused for good, or tried often enough. Every try has the same id, so that whoever took one
/// without an answer knows the next.
async fn post(
    sink: &dyn Sink,
    clock: &dyn Clock,
    mut message: duly_core::Message,
    alert: &Alert,
) -> Result<(), String> {
    message.body = Body::json(alert).map_err(|error| error.to_string())?;
    let mut wait = WAIT_MIN;
    for attempt in 1.. {
        let answers = sink.deliver(&[Delivery::new(message.clone(), attempt)]).await;
        let Some(error) = answers.into_iter().find_map(Result::err) else { break };
        if attempt >= ATTEMPTS_MAX || error.kind == SinkErrorKind::Refused {
            return Err(error.to_string());
        }
        tracing::info!(alert = alert.name, attempt, %error, "alert post failed");
        clock.sleep_until(clock.now().mono().saturating_add(pause(wait, &error))).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
    Ok(())
}

/// As long as the receiver asks for, within bounds.
fn pause(wait: Duration, error: &SinkError) -> Duration {
    error.retry_after.unwrap_or_default().clamp(wait, WAIT_MAX)
}
