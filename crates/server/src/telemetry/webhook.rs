//! Posts alerts to a webhook.

use std::{sync::Arc, time::Duration};

use duly::{Body, Clock, Delivery, Invalid, MessageId, Sink, SinkError, SinkErrorKind, SinkName, Topic};
use duly_sinks::webhook::{AllowPrivate, WebhookConfig};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::wire::Alert;

/// Alerts queued for the webhook; more are dropped. They are still in the log, in the metrics and in `/v1/stats`.
const WAITING_MAX: usize = 64;
/// A topic that leaves the URL of the webhook sink as it is.
const AS_IT_STANDS: &str = "/";
/// Max attempts of one alert, about two minutes. Then the next alert is more useful.
const ATTEMPTS_MAX: u32 = 7;
/// Backoff after the first failure; it doubles up to the maximum.
const WAIT_MIN: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Posts alerts in order from a task of its own, so that a slow receiver delays nothing else.
pub(super) struct Poster(mpsc::Sender<Alert>);

impl Poster {
    /// Posts to `url`. Ends with the poster.
    pub(super) fn start(url: &str, clock: &Arc<dyn Clock>) -> Result<Self, Invalid> {
        // The configuration is trusted: any address is allowed.
        let allow_private = AllowPrivate::All;
        let config = WebhookConfig { url: Some(url.into()), allow_private, ..WebhookConfig::default() };
        Self::to(Arc::new(config.build(clock.clone())?), clock.clone())
    }

    fn to(sink: Arc<dyn Sink>, clock: Arc<dyn Clock>) -> Result<Self, Invalid> {
        let address = Topic::parse(AS_IT_STANDS)?;
        let (sender, mut alerts) = mpsc::channel::<Alert>(WAITING_MAX);
        tokio::spawn(async move {
            let mut serial = 0;
            while let Some(alert) = alerts.recv().await {
                serial += 1;
                let (name, sink, clock, address) =
                    (alert.name.clone(), sink.clone(), clock.clone(), address.clone());
                // A task of its own: a post that panics must not end the loop.
                let posted = tokio::spawn(async move {
                    let now = clock.now().wall();
                    let id = MessageId::generate(now, serial);
                    let message = duly_core::StoredMessage::new(id, SinkName::queue(), address, now);
                    post(&*sink, &*clock, message, &alert).await
                });
                if let Err(why) = posted.await.unwrap_or_else(|panic| Err(panic.to_string())) {
                    tracing::warn!(alert = name, why, "alert post given up");
                }
            }
        });
        Ok(Self(sender))
    }

    pub(super) fn post(&self, alert: &Alert) {
        let why = match self.0.try_send(alert.clone()) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => "too many wait",
            Err(TrySendError::Closed(_)) => "nothing posts any more",
        };
        tracing::warn!(alert = alert.name, why, "alert post given up");
    }
}

/// Posts until the alert is accepted, refused permanently, or out of attempts. Every attempt has the same id, so that the receiver can
/// recognize a duplicate.
async fn post(
    sink: &dyn Sink,
    clock: &dyn Clock,
    mut message: duly_core::StoredMessage,
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

/// The `Retry-After` of the receiver, within bounds.
fn pause(wait: Duration, error: &SinkError) -> Duration {
    error.retry_after.unwrap_or_default().clamp(wait, WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use duly::{ManualClock, Outcomes};

    use super::*;
    use crate::wire::{AlertState, AlertValues};

    /// Panics over the alert `bad`, and tells of the others.
    struct Fragile(mpsc::UnboundedSender<String>);

    impl Fragile {
        async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
            let body = String::from_utf8_lossy(batch[0].message.body.as_bytes()).into_owned();
            assert!(!body.contains("bad"), "as told");
            let _ = self.0.send(body);
            vec![Ok("taken".into())]
        }
    }

    #[async_trait]
    impl Sink for Fragile {
        async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
            outcomes.report_all(self.send_all(batch).await);
        }

        async fn probe(&self) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_post_that_panics_does_not_keep_the_next_ones_back() {
        let (taken, mut posts) = mpsc::unbounded_channel();
        let poster = Poster::to(Arc::new(Fragile(taken)), Arc::new(ManualClock::new())).unwrap();
        for name in ["bad", "overdue", "bad", "orphan"] {
            let (name, scope, state) = (name.to_owned(), None, AlertState::Raised);
            let (detail, since) = (String::new(), String::new());
            poster.post(&Alert { name, scope, state, detail, since, values: AlertValues::default() });
        }
        for name in ["overdue", "orphan"] {
            let post = posts.recv().await.expect("posts go on");
            assert!(post.contains(name), "{post}");
        }
    }
}
