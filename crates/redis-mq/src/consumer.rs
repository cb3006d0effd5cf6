//! Functions that listen by themselves.

use crate::{Error, Listener, RedisMq, Subscription};

/// Something that can be subscribed by its name alone: a function with the attribute [`consumer`](macro@crate::consumer).
pub trait Consumer {
    /// Its subscription, with all that the attribute says. More can be said before it is started.
    fn subscription(&self, mq: &RedisMq) -> Subscription;
}

/// A function that makes the subscription: what the attribute makes of a function with state.
impl<F: Fn(&RedisMq) -> Subscription> Consumer for F {
    fn subscription(&self, mq: &RedisMq) -> Subscription {
        self(mq)
    }
}

impl RedisMq {
    /// Starts consumers, and answers their listeners in the same order.
    ///
    /// If one does not start, those before it are stopped again, and the error is that of the one.
    ///
    /// Cancel safety: dropped midway, those that were started run until [`shutdown`](Self::shutdown).
    pub async fn start(&self, consumers: &[&(dyn Consumer + Sync)]) -> Result<Vec<Listener>, Error> {
        let mut running = Vec::with_capacity(consumers.len());
        for consumer in consumers {
            match consumer.subscription(self).start().await {
                Ok(listener) => running.push(listener),
                Err(error) => {
                    for listener in running {
                        listener.stop().await;
                    }
                    return Err(error);
                }
            }
        }
        Ok(running)
    }
}
