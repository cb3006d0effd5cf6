//! Every error that a user of Duly can meet, in one table: library, HTTP, command line and clients share it.

use std::fmt;

/// Defines the enum and its table from one list, so that no code lacks a status or a title.
macro_rules! error_codes {
    ($($name:ident = $word:literal, $status:literal, $title:literal;)*) => {
        /// The stable code of an error. `docs/reference/errors.md` explains each.
        ///
        /// The words never change once released; new ones may come.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = $title] $name,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word that stands in answers, logs and documentation.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The HTTP status of an answer with this code; 500 for those that only the library and the configuration have.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }

            /// The kind of error in a few words.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }
        }
    };
}

error_codes! {
    BadJson = "bad_json", 400, "The body is not the JSON that is expected here";
    BadQuery = "bad_query", 400, "The query of the URL is not understood";
    BadCursor = "bad_cursor", 400, "This cursor was not given by a list";
    IncompleteBody = "incomplete_body", 400, "The connection ended in the middle of the body";
    Unauthorized = "unauthorized", 401, "A token is needed";
    Forbidden = "forbidden", 403, "The token does not allow this";
    IdNotAllowed = "id_not_allowed", 403, "The token may not choose this id";
    CrossOrigin = "cross_origin", 403, "Another web page may not call this server";
    BadHost = "bad_host", 403, "The Host header does not name this server";
    NotFound = "not_found", 404, "There is no such message";
    NoSuchSink = "no_such_sink", 404, "There is no such sink";
    NoSuchRoute = "no_such_route", 404, "There is no such address";
    MethodNotAllowed = "method_not_allowed", 405, "This address does not take this method";
    BodyTimeout = "body_timeout", 408, "The body did not come in time";
    IdConflict = "id_conflict", 409, "The id is known with other content";
    TooLate = "too_late", 409, "The message is in a state that does not allow this";
    BodyTooLarge = "body_too_large", 413, "The body is larger than the limit";
    BatchTooLarge = "batch_too_large", 413, "The batch has more items than the limit";
    BadEncoding = "bad_encoding", 415, "The body is compressed";
    BadField = "bad_field", 422, "A field is missing, unknown or of the wrong type";
    BadId = "bad_id", 422, "This is not an id";
    BadSink = "bad_sink", 422, "This is not the name of a sink";
    BadTopic = "bad_topic", 422, "This is not a topic";
    BadTag = "bad_tag", 422, "This is not a tag";
    BadKey = "bad_key", 422, "This is not a key";
    BadBody = "bad_body", 422, "The body of the message cannot be read";
    BadProperty = "bad_property", 422, "This is not a property";
    ReservedProperty = "reserved_property", 422, "This property is set by Duly or would delay twice";
    TooManyProperties = "too_many_properties", 422, "The message has more properties than the limit";
    BadDelay = "bad_delay", 422, "This is not a span of time";
    TooLong = "too_long", 422, "The span of time is longer than allowed here";
    BadTime = "bad_time", 422, "This is not a point in time";
    TwoBodies = "two_bodies", 422, "More than one of body, json and body_base64";
    TwoTimes = "two_times", 422, "More than one of delay, deliver_at and level";
    NoTime = "no_time", 422, "A time is needed";
    TooFar = "too_far", 422, "The time is further away than the limit";
    BadPriority = "bad_priority", 422, "This is not a priority";
    BadRetry = "bad_retry", 422, "Invalid retry policy";
    BadReceipt = "bad_receipt", 422, "This is not a receipt";
    WrongQueue = "wrong_queue", 422, "The receipt is of another queue";
    BadState = "bad_state", 422, "This is not a state";
    BadSelection = "bad_selection", 422, "Give either ids or a filter";
    BadSpan = "bad_span", 422, "Invalid forecast span";
    TooMany = "too_many", 422, "More at once than the limit";
    UnknownSink = "unknown_sink", 422, "No such sink is configured";
    TopicNotAllowed = "topic_not_allowed", 422, "The sink does not take this topic";
    ReservedTopic = "reserved_topic", 422, "This topic is the name of something that Duly keeps itself";
    UnknownLevel = "unknown_level", 422, "No such level is configured";
    TooManyPending = "too_many_pending", 429, "As many messages wait as the limit allows";
    TooManyTopics = "too_many_topics", 429, "The built-in queue has as many topics as the limit allows";
    TooManyInFlight = "too_many_in_flight", 429, "As many messages of the queue are in flight as the limit allows";
    Internal = "internal", 500, "A fault of the server";
    StoreDamaged = "store_damaged", 500, "What is stored cannot be trusted";
    Busy = "busy", 503, "Too much at once for the memory set aside";
    TooManyConnections = "too_many_connections", 503, "As many connections are open as the limit allows";
    ShuttingDown = "shutting_down", 503, "The server is stopping";
    DeliveryStopped = "delivery_stopped", 503, "Delivery has stopped by a fault of the server";
    DeliveryDisabled = "delivery_disabled", 503, "This process only accepts messages";
    StoreUnavailable = "store_unavailable", 503, "The store cannot be reached";
    StoreClosed = "store_closed", 503, "The store is closed";
    SinkUnreachable = "sink_unreachable", 503, "The sink cannot deliver now";
    StoreUnanswered = "store_unanswered", 504, "The store gave no answer: it may have been done";
    DiskFull = "disk_full", 507, "There is no room for new messages";
    // Never an answer to a call: of the configuration, the library and rows that others wrote.
    BadLimit = "bad_limit", 500, "Invalid limit";
    BadLease = "bad_lease", 500, "Invalid lease";
    BadTimeout = "bad_timeout", 500, "Invalid timeout";
    BadHandler = "bad_handler", 500, "Invalid handler option";
    BadSweep = "bad_sweep", 500, "These sweep intervals contradict each other";
    BadAddress = "bad_address", 500, "This address of a store is not understood";
    NoStore = "no_store", 500, "No store was given";
    ReservedSink = "reserved_sink", 500, "This name belongs to the built-in queue";
    DuplicateSink = "duplicate_sink", 500, "Two sinks have the same name";
    BadKind = "bad_kind", 500, "This is not a kind of content";
    BadStatus = "bad_status", 500, "This is not a status";
    BadHistory = "bad_history", 500, "These attempts cannot be read";
    BadReason = "bad_reason", 500, "This is not a reason";
    HandlerExists = "handler_exists", 500, "The queue has a handler already";
    NoHandler = "no_handler", 500, "The queue has no handler";
    Closed = "closed", 500, "This Duly was shut down";
    NoThread = "no_thread", 500, "The machine gave no thread";
    NoRuntime = "no_runtime", 500, "There is no Tokio runtime here";
}

impl ErrorCode {
    /// The code that has this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == word)
    }

    /// The path of its page on a Duly server.
    pub fn page(self) -> String {
        format!("/errors#{self}")
    }

    /// Whether the same call may succeed a little later, without any change.
    pub const fn is_transient(self) -> bool {
        matches!(self.status(), 429 | 503 | 504 | 507)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Lets clients and tests compare by word: `error.code() == "id_conflict"`.
impl PartialEq<&str> for ErrorCode {
    fn eq(&self, word: &&str) -> bool {
        self.as_str() == *word
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_codes_share_a_word_and_each_is_found_by_it() {
        let words: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), ErrorCode::ALL.len());
        assert!(ErrorCode::ALL.iter().all(|code| ErrorCode::parse(code.as_str()) == Some(*code)));
        assert_eq!(ErrorCode::parse("no_such_code"), None);
    }
}
