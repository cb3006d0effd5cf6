//! The built-in queue.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Delay, object::objects_only};

objects_only!(Receive, ReceiveAny, Receipts, Nack, Extend);

/// What a receiver wants.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Receive {
    /// At most so many; 10 unless told otherwise, 1,000 at most. Fewer come if they are large.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::number::whole")]
    pub max: Option<usize>,
    /// How long to wait for the first; not at all unless told otherwise, 60 s at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Delay>,
    /// How long the receiver has before they are given to somebody else; 30 s unless told otherwise, 12 h at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Delay>,
}

/// What a receiver of several queues wants.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ReceiveAny {
    /// The queues, 1 to 32. Each has an equal share of `max` while it has so many: none starves another.
    pub topics: Vec<String>,
    /// At most so many; 10 unless told otherwise, 1,000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::number::whole")]
    pub max: Option<usize>,
    /// How long to wait for the first of any queue; not at all unless told otherwise, 60 s at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Delay>,
    /// How long the receiver has before they are given to somebody else; 30 s unless told otherwise, 12 h at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Delay>,
}

/// What was received: empty if nothing came in time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct Received {
    /// The messages.
    pub messages: Vec<ReceivedMessage>,
}

/// A message in a receiver's hands.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct ReceivedMessage {
    // A client without a JSON library takes these two from the front of the answer (docs/guide/worker.md): they stay first.
    /// Its id.
    pub id: String,
    /// The proof, for ack, nack and extend.
    pub receipt: String,
    /// The queue.
    pub topic: String,
    /// Its tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The body, if it was sent as `json`: the same value, which may be `null`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::json::present")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub json: Option<Box<RawValue>>,
    /// The body, if it was sent as text or there is none. Also JSON that did not come by HTTP and is nested deeper than 500 lists and
    /// objects: parsers give up on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body, if it was sent as bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// What the producer said the body is.
    pub content_type: String,
    /// Its properties.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// When it was due.
    pub deliver_at: String,
    /// The same, in milliseconds since 1970.
    pub deliver_at_ms: u64,
    /// The number of this attempt, from 1.
    pub attempt: u32,
}

/// Receipts to acknowledge.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Receipts {
    /// At most 1,000.
    pub receipts: Vec<String>,
}

/// Receipts to give back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Nack {
    /// At most 1,000.
    pub receipts: Vec<String>,
    /// Again after exactly this long; unless told otherwise, when the retry policy of the message or of `[handlers]` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// What went wrong, kept with the attempt, up to 512 bytes of it. With it the attempt counts as failed: the first wait is longer. Half a
    /// surrogate pair, and what is not UTF-8, is kept as U+FFFD.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::text::lossy")]
    pub error: Option<String>,
    /// They can never be handled: dead letters now. Goes with no `delay`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
}

/// Receipts to keep for longer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Extend {
    /// At most 1,000.
    pub receipts: Vec<String>,
    /// The lease ends this long from now; 30 s unless told otherwise, 12 h at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Delay>,
}

/// One answer per receipt, in their order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct ReceiptResults {
    /// The answers.
    pub results: Vec<ReceiptResult>,
}

/// What became of one receipt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub struct ReceiptResult {
    /// The receipt.
    pub receipt: String,
    /// `done`; `lost`: its lease had ended or it was settled before; or `unknown`: the part of the store that knows cannot be asked now, send it again.
    pub outcome: String,
}
