//! The JSON that travels between Duly and its clients. Server and client share these shapes, and the OpenAPI file is made from
//! them (feature `openapi`).
//!
//! Answers may get more fields and kinds, so they are `#[non_exhaustive]`: read them by their fields, and end a `match` with `_`. The
//! feature `server` takes that away. It is for the server, which must write every field; whoever else uses it is broken by the next one.

mod bulk;
mod event;
mod json;
mod message;
mod number;
mod object;
mod overview;
mod problem;
mod properties;
mod queue;
mod text;
mod when;
mod words;

pub use bulk::{BulkAnswer, BulkRequest, Filter, MovedRequest};
pub use event::{EVENTS_KEEP_ALIVE, Event};
#[doc(hidden)]
pub use message::is_object;
pub use message::{
    Accepted, Attempt, BatchResult, Cancelled, Message, MessageContent, MessageEnd, MessageTimes, NewMessage,
    Reschedule, Rescheduled, Retry,
};
pub use overview::{
    Alert, AlertState, AlertValues, Forecast, ForecastBucket, Lateness, Level, LevelsAnswer, Node,
    NodesAnswer, OrphanLane, Page, Queue, QueuesAnswer, Ready, Shard, ShardOwner, Sink, SinksAnswer, Stats,
    TotalsAnswer, WhoAnswer,
};
pub use problem::{ItemError, Problem};
pub use queue::{
    Extend, Nack, ReceiptResult, ReceiptResults, Receipts, Receive, ReceiveAny, Received, ReceivedMessage,
};
pub use when::{DUE_MILLIS_MIN, Delay, Moment};
#[doc(hidden)]
pub use words::plain;
