//! The spans of a message, and the trace contexts by which they are connected.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use duly::{
    Delivery, ManualClock, Message, Outcomes, Receive, Sink, SinkError, SinkErrorKind, SinkOptions,
    StoredMessage, TraceContext, Tracer, Verdict, minutes, seconds,
};
use duly_stores::MemoryStore;
use tracing::{
    Event, Metadata, Span, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::{DefaultGuard, Interest},
};

use crate::bench::{Bench, Mood, Target};

/// The trace of a producer.
const PRODUCER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// One span: its name, its fields, and what the tracer was told of it.
#[derive(Debug, Clone, Default)]
struct Recorded {
    name: &'static str,
    fields: BTreeMap<String, String>,
    parent: Option<String>,
    links: Vec<String>,
    handles: usize,
    has_been_entered: bool,
    is_entered: bool,
}

/// Keeps every span, and is the tracer of them. The context of a span is its name and number.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Recorded>>>);

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").trim_matches('"').into());
    }
}

impl Subscriber for Recorder {
    /// Not "always", which would hold for threads that nobody listens on.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("duly")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut recorded = Recorded { name: attributes.metadata().name(), handles: 1, ..Recorded::default() };
        attributes.record(&mut Fields(&mut recorded.fields));
        let mut spans = self.0.lock().unwrap();
        spans.push(recorded);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.change(id, |recorded| values.record(&mut Fields(&mut recorded.fields)));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.change(id, |recorded| (recorded.has_been_entered, recorded.is_entered) = (true, true));
    }

    fn exit(&self, id: &Id) {
        self.change(id, |recorded| recorded.is_entered = false);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.change(id, |recorded| recorded.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.change(&id, |recorded| {
            recorded.handles -= 1;
            recorded.handles == 0
        })
    }
}

impl Tracer for Recorder {
    fn set_parent(&self, span: &Span, context: &TraceContext) {
        self.change(&span.id().unwrap(), |recorded| {
            assert!(!recorded.has_been_entered, "too late");
            recorded.parent = Some(context.parent.clone());
        });
    }

    fn add_link(&self, span: &Span, context: &TraceContext) {
        self.change(&span.id().unwrap(), |recorded| recorded.links.push(context.parent.clone()));
    }

    fn context(&self, span: &Span) -> Option<TraceContext> {
        let id = span.id().unwrap();
        Some(TraceContext::new(context(self.change(&id, |recorded| recorded.name), id.into_u64() as usize)))
    }
}

fn context(name: &str, id: usize) -> String {
    format!("{name} {id}")
}

impl Recorder {
    fn change<T>(&self, id: &Id, change: impl FnOnce(&mut Recorded) -> T) -> T {
        change(&mut self.0.lock().unwrap()[id.into_u64() as usize - 1])
    }

    /// The spans of this name that have ended, with their contexts.
    fn ended(&self, name: &str) -> Vec<(String, Recorded)> {
        let spans = self.0.lock().unwrap();
        let numbered =
            spans.iter().enumerate().map(|(at, recorded)| (context(recorded.name, at + 1), recorded.clone()));
        numbered.filter(|(_, recorded)| recorded.name == name && recorded.handles == 0).collect()
    }

    /// The spans that run now.
    fn entered(&self) -> Vec<&'static str> {
        let spans = self.0.lock().unwrap();
        spans.iter().filter(|recorded| recorded.is_entered).map(|recorded| recorded.name).collect()
    }

    /// Listens on this thread, which is the only one of the test.
    fn listen(&self) -> DefaultGuard {
        tracing::subscriber::set_default(self.clone())
    }
}

impl Recorded {
    fn of<const N: usize>(&self, fields: [&str; N]) -> [&str; N] {
        fields.map(|field| self.fields.get(field).map_or("", String::as_str))
    }
}

/// Takes everything and keeps it.
#[derive(Default)]
struct Arrivals(Mutex<Vec<StoredMessage>>);

#[async_trait]
impl Sink for Arrivals {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        self.0.lock().unwrap().extend(batch.iter().map(|delivery| delivery.message.clone()));
        outcomes.report_all(batch.iter().map(|_| Ok("taken".into())));
    }

    async fn probe(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Arrivals {
    /// The `traceparent` that each message arrived with, by id.
    fn parents(&self) -> BTreeMap<String, String> {
        let all = self.0.lock().unwrap();
        let parent = |message: &StoredMessage| message.properties.get("traceparent").unwrap_or("").to_owned();
        all.iter().map(|message| (message.id.to_string(), parent(message))).collect()
    }
}

async fn bench(tracer: Option<&Recorder>) -> (Bench, Arc<Arrivals>) {
    let arrivals = Arc::new(Arrivals::default());
    let sink = arrivals.clone();
    let bench = Bench::with(|builder| {
        let builder = builder.sink("orders", sink, SinkOptions::default());
        match tracer {
            Some(tracer) => builder.tracer(tracer.clone()),
            None => builder,
        }
    });
    (bench.await, arrivals)
}

#[tokio::test]
async fn the_delivery_is_linked_to_the_accepting_span_however_late_it_is() {
    let recorder = Recorder::default();
    let _listens = recorder.listen();
    let (bench, arrivals) = bench(Some(&recorder)).await;
    let message = Message::to("orders/paid").id("a").property("traceparent", PRODUCER);
    bench.send(message.property("tracestate", "a=1").after(minutes(60))).await;
    let (accept_context, accept) = recorder.ended("accept").remove(0);
    assert_eq!(accept.parent.as_deref(), Some(PRODUCER), "it continues the trace of the producer");
    assert_eq!(
        accept.of(["sink", "topic", "id", "messages", "accepted", "otel.kind"]),
        ["orders", "paid", "a", "1", "1", "producer"]
    );
    bench.pass(minutes(61)).await;
    let (deliver_context, deliver) = recorder.ended("deliver").remove(0);
    assert_eq!((&deliver.parent, &deliver.links), (&None, &vec![accept_context.clone()]));
    assert_eq!(
        deliver.of(["sink", "topic", "id", "attempt", "outcome", "error"]),
        ["orders", "paid", "a", "1", "delivered", ""]
    );
    assert_eq!(arrivals.parents()["a"], deliver_context);
    assert_eq!(arrivals.0.lock().unwrap()[0].properties.get("tracestate"), None, "that of another trace");
    for (name, count) in [("claim", "messages"), ("settle", "settled")] {
        let spans = recorder.ended(name);
        let (_, span) = spans.iter().find(|(_, recorded)| recorded.of([count]) == ["1"]).expect(name);
        assert_eq!((span.of(["lane"]), &span.links), (["orders"], &vec![accept_context.clone()]), "{name}");
    }
}

#[tokio::test]
async fn messages_of_several_traces_keep_their_own() {
    let recorder = Recorder::default();
    let _listens = recorder.listen();
    let (bench, _) = bench(Some(&recorder)).await;
    let other = PRODUCER.replace("4bf9", "ffff");
    let message = |id: &str| Message::to("order").id(id);
    let traced = |id: &str, parent: &str| message(id).property("traceparent", parent);
    bench.duly.send_batch([traced("a", PRODUCER), traced("b", &other), message("c")]).await;
    let (own, accept) = recorder.ended("accept").remove(0);
    assert_eq!((accept.parent, accept.links), (None, vec![PRODUCER.to_owned(), other.clone()]));
    let parents = async || {
        let received = bench.duly.receive("order", Receive { max: 9, ..Receive::default() }).await.unwrap();
        received
            .iter()
            .map(|r| r.message.properties.get("traceparent").unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(parents().await, [PRODUCER, &other, &own]);
    // Of one trace they are children of the call that accepted them.
    bench.duly.send_batch([traced("d", PRODUCER), traced("e", PRODUCER)]).await;
    let (own, accept) = recorder.ended("accept").remove(1);
    assert_eq!(accept.parent.as_deref(), Some(PRODUCER));
    assert_eq!(parents().await, [own.as_str(), &own]);
    assert_eq!(
        recorder.ended("claim").iter().map(|(_, claim)| claim.of(["lane"])).next_back(),
        Some(["queue/order"])
    );
}

#[tokio::test]
async fn without_a_tracer_a_message_carries_what_its_producer_gave_it() {
    let recorder = Recorder::default();
    let _listens = recorder.listen();
    let (bench, arrivals) = bench(None).await;
    bench.send(Message::to("orders/paid").id("a").property("traceparent", PRODUCER)).await;
    bench.send(Message::to("orders/paid").id("b")).await;
    bench.pass(seconds(5)).await;
    assert_eq!(recorder.ended("deliver").len(), 2, "spans need no tracer");
    assert_eq!(arrivals.parents().into_values().collect::<Vec<_>>(), [PRODUCER, ""]);
}

#[tokio::test]
async fn without_a_listener_a_tracer_is_not_asked() {
    let recorder = Recorder::default();
    let (bench, arrivals) = bench(Some(&recorder)).await;
    bench.send(Message::to("orders/paid").id("a").property("traceparent", PRODUCER)).await;
    bench.pass(seconds(5)).await;
    assert!(recorder.0.lock().unwrap().is_empty());
    assert_eq!(arrivals.parents()["a"], PRODUCER);
}

#[tokio::test]
async fn an_attempt_that_fails_or_is_given_up_says_so() {
    let recorder = Recorder::default();
    let _listens = recorder.listen();
    let clock = ManualClock::new();
    let (refuses, hangs) =
        (Target::new(&clock, Mood::Bad(SinkErrorKind::Refused)), Target::new(&clock, Mood::Hangs));
    let bench = Bench::on(Arc::new(MemoryStore::new()), clock, |builder| {
        builder
            .sink("refuses", refuses, SinkOptions::default())
            .sink("hangs", hangs, SinkOptions::default())
            .tracer(recorder.clone())
    })
    .await;
    bench.send(Message::to("refuses/x")).await;
    bench.send(Message::to("hangs/x")).await;
    bench.pass(seconds(20)).await;
    for (sink, outcome, error) in
        [("refuses", "refused", "as told"), ("hangs", "unknown", "the call was given up")]
    {
        let spans = recorder.ended("deliver");
        let (_, span) = spans.iter().find(|(_, recorded)| recorded.of(["sink"]) == [sink]).expect(sink);
        assert_eq!(span.of(["outcome", "error", "otel.status_code"]), [outcome, error, "ERROR"]);
    }
}

#[tokio::test]
async fn a_handler_runs_in_the_span_of_its_attempt() {
    let recorder = Recorder::default();
    let _listens = recorder.listen();
    let (bench, _) = bench(Some(&recorder)).await;
    let (within, mut entered) = tokio::sync::mpsc::unbounded_channel();
    let spans = recorder.clone();
    let handler = move |_| {
        let (within, spans) = (within.clone(), spans.clone());
        async move {
            within.send(spans.entered()).unwrap();
            Verdict::Done
        }
    };
    bench.duly.handle("order", handler).start().await.unwrap();
    bench.send(Message::to("order").id("a").after(seconds(1))).await;
    bench.pass(seconds(5)).await;
    let (_, span) = recorder.ended("deliver").remove(0);
    assert_eq!(span.of(["topic", "outcome", "otel.kind"]), ["order", "delivered", "consumer"]);
    assert_eq!(entered.recv().await.unwrap(), ["deliver"]);
}
