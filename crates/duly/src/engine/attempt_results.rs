//! Results of attempts on their way from a call to the driver.

use std::sync::{Arc, Mutex, PoisonError};

use duly_core::{
    Delivery, Outcome, Outcomes, Sink,
    schedule::{AttemptResult, DeliveryKey},
};
use tokio::sync::mpsc::UnboundedSender;

use super::{Completion, Input, catch_panic};
use crate::trace::DeliverSpans;

/// The results of one call that the driver has not taken yet. Results that are known at the same time are one input.
pub(crate) struct AttemptResults {
    pub(super) delivery: DeliveryKey,
    known: Mutex<Vec<(usize, AttemptResult)>>,
}

impl AttemptResults {
    pub(super) fn new(delivery: DeliveryKey) -> Arc<Self> {
        Arc::new(Self { delivery, known: Mutex::default() })
    }

    /// Returns whether this is the first since the last [`take`](Self::take).
    pub(super) fn push(&self, index: usize, end: AttemptResult) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.push((index, end));
        known.len() == 1
    }

    pub(super) fn take(&self) -> Vec<(usize, AttemptResult)> {
        std::mem::take(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Delivers a batch; the driver gets each result as soon as it is known.
pub(super) async fn deliver(
    sink: &dyn Sink,
    batch: &[Delivery],
    spans: &DeliverSpans,
    (results, inputs): (&Arc<AttemptResults>, &UnboundedSender<Input>),
) {
    let report = |index: usize, result: Result<String, duly_core::SinkError>| {
        let end = match result {
            Ok(receipt) => AttemptResult::Delivered { receipt: Some(receipt) },
            Err(error) => AttemptResult::from(error),
        };
        spans.end(index, &end);
        if results.push(index, end) {
            // The driver ends only after the shutdown.
            let _ = inputs.send(Completion::CallResults { results: results.clone() }.into());
        }
    };
    if let Err(panic) = catch_panic(sink.deliver_each(batch, &Outcomes::new(&report))).await {
        for index in 0..batch.len() {
            results.push(index, AttemptResult::failed(Outcome::Unknown, panic.clone()));
        }
    }
}
