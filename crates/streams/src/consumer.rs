//! Consumers: functions with the attribute `consumer`.

use crate::{Error, Listener, Streams, Subscription};

/// A function with the attribute [`consumer`](macro@crate::consumer).
pub trait Consumer {
    /// Builds its listener, with the options of the attribute.
    fn subscription(&self, streams: &Streams) -> Subscription;
}

/// A function that builds the listener: what the attribute makes of a function with state.
impl<F: Fn(&Streams) -> Subscription> Consumer for F {
    fn subscription(&self, streams: &Streams) -> Subscription {
        self(streams)
    }
}

impl Streams {
    /// Starts consumers. Returns their listeners in the same order.
    ///
    /// If one fails to start, those before it are stopped, and its error is returned.
    ///
    /// Cancel safety: dropped midway, started ones run until [`shutdown`](Self::shutdown).
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
