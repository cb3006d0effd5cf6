//! The JSON that travels between Duly and its clients. Server and command line share these shapes, and the OpenAPI file
//! is made from them.

mod bulk;
mod event;
mod look;
mod message;
mod number;
mod problem;
mod queue;
mod when;
mod words;

pub use bulk::{BulkAnswer, BulkRequest, Filter, MovedRequest};
pub use event::Happened;
pub use look::{
    Alert, AlertState, AlertValues, BooksAnswer, DeadPage, Forecast, ForecastBucket, Lateness, Level,
    LevelsAnswer, Node, NodesAnswer, OrphanLane, Page, Queue, QueuesAnswer, Ready, Shard, ShardOwner, Sink,
    SinksAnswer, Stats, WhoAnswer,
};
pub(crate) use message::is_object;
pub use message::{
    Accepted, Attempt, BatchResult, Cancelled, Message, NewMessage, Reschedule, Rescheduled, Retry,
};
pub use problem::{ItemError, Problem};
pub use queue::{
    Extend, Nack, ReceiptResult, ReceiptResults, Receipts, Receive, ReceiveAny, Received, ReceivedMessage,
};
pub use when::{DUE_MILLIS_MIN, Delay, Moment};
pub(crate) use words::plain;
