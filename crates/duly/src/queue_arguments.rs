//! What calls of the built-in queue are given, checked.

use duly_core::{ErrorCode, Invalid, Receipt, Topic};

use crate::Receive;

/// The queues to receive from, each once.
pub(crate) fn topics<Q: AsRef<str>>(queues: &[Q]) -> Result<Vec<Topic>, Invalid> {
    if queues.is_empty() || queues.len() > Receive::QUEUES_MAX {
        let detail =
            format!("one call receives from 1 to {} queues, not {}", Receive::QUEUES_MAX, queues.len());
        return Err(Invalid::new(ErrorCode::TooMany, "topics", detail));
    }
    let mut topics =
        queues.iter().map(|queue| Topic::parse_new(queue.as_ref())).collect::<Result<Vec<_>, _>>()?;
    topics.sort_unstable();
    topics.dedup();
    Ok(topics)
}

/// The receipts in a call, each with its place in the error.
pub(crate) fn parse<R: AsRef<str>>(receipts: &[R]) -> Result<Vec<Receipt>, Invalid> {
    let parse = |(index, receipt): (usize, &R)| {
        let at = |fault: Invalid| Invalid::new(fault.code, format!("receipts[{index}]"), fault.detail);
        receipt.as_ref().parse().map_err(at)
    };
    receipts.iter().enumerate().map(parse).collect()
}
