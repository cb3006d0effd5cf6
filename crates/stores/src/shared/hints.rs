//! Wake-ups from other nodes, over a connection that listens. They may be lost: the sweep finds the same messages.

use duly_core::store::Hint;
use futures_util::{StreamExt, stream::BoxStream};
use tokio::sync::{Mutex, Notify};

/// The payloads that a subscription receives, until its connection ends.
pub(crate) type Payloads = BoxStream<'static, Vec<u8>>;

/// The subscription of this process to hints of others.
#[derive(Default)]
pub(crate) struct HintListener {
    payloads: Mutex<Option<Payloads>>,
    swept: Notify,
}

impl HintListener {
    /// The server answered a sweep: if no connection listens, this is a good time to subscribe.
    pub(crate) fn swept(&self) {
        self.swept.notify_waiters();
    }

    /// The next payload that `parse` understands. `subscribe` is asked at first, and after a sweep if it failed or its connection ended.
    pub(crate) async fn next<F>(
        &self,
        subscribe: impl Fn() -> F,
        parse: impl Fn(&[u8]) -> Option<Hint>,
    ) -> Hint
    where
        F: Future<Output = Option<Payloads>>,
    {
        loop {
            let mut payloads = self.payloads.lock().await;
            if payloads.is_none() {
                *payloads = subscribe().await;
            }
            while let Some(open) = payloads.as_mut() {
                match open.next().await {
                    Some(payload) => {
                        if let Some(hint) = parse(&payload) {
                            return hint;
                        }
                    }
                    None => *payloads = None,
                }
            }
            drop(payloads);
            self.swept.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::Mutex};

    use duly_core::{Lane, Timestamp, Topic};
    use futures_util::{FutureExt, stream};

    use super::*;

    fn parse(payload: &[u8]) -> Option<Hint> {
        let topic = Topic::parse(std::str::from_utf8(payload).ok()?).ok()?;
        Some(Hint { lane: Lane::Queue(topic), due: Timestamp::from_millis(1) })
    }

    #[test]
    fn a_subscription_that_fails_or_ends_is_made_again_after_a_sweep() {
        let listener = HintListener::default();
        // From the last to the first: one with a hint behind something unknown, one that ends, one that cannot be made.
        let of = |payloads: &[&str]| {
            let payloads: Vec<_> = payloads.iter().map(|payload| payload.as_bytes().to_vec()).collect();
            Some(stream::iter(payloads).boxed())
        };
        let subscriptions = Mutex::new(vec![of(&["", "orders", "bills"]), of(&[]), None]);
        let subscribe = || async { subscriptions.lock().unwrap().pop().unwrap() };
        {
            let mut next = pin!(listener.next(subscribe, parse));
            for left in [2, 1] {
                assert_eq!(next.as_mut().now_or_never(), None);
                assert_eq!(subscriptions.lock().unwrap().len(), left);
                assert_eq!(next.as_mut().now_or_never(), None, "without a sweep nobody asks again");
                assert_eq!(subscriptions.lock().unwrap().len(), left);
                listener.swept();
            }
            assert_eq!(next.now_or_never(), parse(b"orders"));
        }
        // Who asks for the next one goes on with the same subscription.
        assert_eq!(listener.next(subscribe, parse).now_or_never(), Some(parse(b"bills").unwrap()));
    }
}
