//! What arrived, by the targets' own word.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use ::redis::{ConnectionLike, Value, streams::StreamRangeReply};
use bytes::Bytes;
use http::Response;
use testkit::http::{HttpServer, Reply, Request};

use crate::load::Time;

/// The streams, in several slots of a cluster.
pub(crate) const STREAMS: [&str; 4] = ["chaos-a", "chaos-b", "chaos-c", "chaos-d"];

/// The webhook answers within this.
const ANSWER_WITHIN_MS: u64 = 200;

/// One copy of a message at a target.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// When, by the target.
    pub(crate) at_ms: u64,
    /// When it was due, by what it says itself.
    pub(crate) due_ms: u64,
    /// The entry of a stream and the number of the try, or the node that posted it.
    pub(crate) from: String,
}

/// By id.
pub(crate) type Arrivals = HashMap<String, Vec<Arrival>>;

/// Reads all of the streams.
pub(crate) fn in_streams(redis: &mut impl ConnectionLike) -> Arrivals {
    let mut arrivals = Arrivals::new();
    for stream in STREAMS {
        let read = ::redis::cmd("XRANGE").arg(stream).arg("-").arg("+").query::<StreamRangeReply>(redis);
        for entry in read.unwrap().ids {
            let field = |name: &str| entry.get::<String>(name).unwrap();
            // Redis makes it: its own time in milliseconds, and a number.
            let at_ms = entry.id.split('-').next().unwrap().parse().unwrap();
            let due_ms = field("duly-due").parse().unwrap();
            let from = format!("{stream} {} by try {}", entry.id, field("duly-attempt"));
            arrivals.entry(field("duly-id")).or_default().push(Arrival { at_ms, due_ms, from });
            assert!(
                matches!(entry.map.get("body"), Some(Value::BulkString(body)) if *body == format!("body of {}", field("duly-id")).into_bytes())
            );
        }
    }
    arrivals
}

/// A webhook's far end.
pub(crate) struct Hook {
    server: HttpServer,
    arrivals: Arc<Mutex<Arrivals>>,
}

impl Hook {
    pub(crate) fn start(time: Time) -> Self {
        let arrivals: Arc<Mutex<Arrivals>> = Arc::default();
        let theirs = arrivals.clone();
        let server = HttpServer::start(move |request: &Request| {
            let header = |name: &str| request.header(name).unwrap();
            let arrival = Arrival {
                at_ms: time.wall_ms(),
                due_ms: header("duly-due").parse().unwrap(),
                from: header("x-node"),
            };
            // It takes its time, so that faults find some under way.
            let span = Duration::from_millis(arrival.at_ms % ANSWER_WITHIN_MS);
            theirs.lock().unwrap().entry(header("duly-id")).or_default().push(arrival);
            Reply::Later(Response::builder().status(204).body(Bytes::new()).unwrap(), span)
        });
        Self { server, arrivals }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn arrivals(&self) -> Arrivals {
        self.arrivals.lock().unwrap().clone()
    }
}
