//! Traces and metrics by OTLP, from the binary to a collector.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{Metric, metric::Data, number_data_point},
    trace::v1::Span,
};
use prost::Message;
use rustix::process::Signal;

use super::{duly, serve::Process};

const CLIENT_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

/// What does not come within this span does not come at all.
const SOON: Duration = Duration::from_secs(60);

/// One request, as a server got it.
struct Request {
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// An HTTP server that takes everything and tells of it.
struct Server {
    addr: SocketAddr,
    requests: Receiver<Request>,
}

impl Server {
    fn start() -> Self {
        let (sender, requests) = mpsc::channel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, sender) = (stream.unwrap(), sender.clone());
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Self { addr, requests }
    }

    fn next(&self) -> Request {
        self.requests.recv_timeout(SOON).expect("a request")
    }
}

/// Until the client goes.
fn serve(stream: TcpStream, requests: &Sender<Request>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let headers: BTreeMap<_, _> = lines
            .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect();
        let length = headers.get("content-length").map_or(Some(0), |length| length.parse().ok())?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        requests.send(Request { path, headers, body }).ok()?;
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// Calls Duly. Gives the whole answer as text.
fn call(process: &Process, head: &str, body: &str) -> String {
    let host = process.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let length = body.len();
    let request =
        format!("{head}\r\nhost: {host}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A server that delivers to `hook`, and exports to `collector`.
fn process(collector: SocketAddr, hook: SocketAddr) -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[sinks.hook]\nkind = \"webhook\"\nurl = \"http://{hook}\"\nallow_private = true\n
        [telemetry.otlp]\nendpoint = \"http://{collector}/base\"\ninterval = \"1s\"\ntimeout = \"1s\"\n
        headers = {{ x-tenant = \"a\" }}\nresource.service.name = \"shop\"\n"
    );
    fs::write(folder.path().join("duly.toml"), config).unwrap();
    let started = Process::of(duly().args(["serve", "--listen", "127.0.0.1:0"]), folder.path());
    (started, folder)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> &'a str {
    let found = attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        _ => "",
    }
}

/// What a collector has got so far.
#[derive(Default)]
struct Collected {
    spans: Vec<Span>,
    metrics: Vec<Metric>,
    services: Vec<String>,
}

impl Collected {
    fn take(&mut self, request: &Request) {
        assert_eq!(request.headers["content-type"], "application/x-protobuf");
        assert_eq!(request.headers["x-tenant"], "a");
        let service = |resource: Option<opentelemetry_proto::tonic::resource::v1::Resource>| {
            text(&resource.unwrap().attributes, "service.name").to_owned()
        };
        match request.path.as_str() {
            "/base/v1/traces" => {
                let traces = ExportTraceServiceRequest::decode(&*request.body).unwrap();
                for spans in traces.resource_spans {
                    self.services.push(service(spans.resource));
                    self.spans.extend(spans.scope_spans.into_iter().flat_map(|scope| scope.spans));
                }
            }
            "/base/v1/metrics" => {
                let metrics = ExportMetricsServiceRequest::decode(&*request.body).unwrap();
                for metrics in metrics.resource_metrics {
                    self.services.push(service(metrics.resource));
                    self.metrics =
                        metrics.scope_metrics.into_iter().flat_map(|scope| scope.metrics).collect();
                }
            }
            path => panic!("{path}"),
        }
    }

    fn span(&self, name: &str) -> Option<&Span> {
        self.spans.iter().find(|span| span.name == name)
    }

    fn metric(&self, name: &str) -> Option<&Data> {
        self.metrics.iter().find(|metric| metric.name == name)?.data.as_ref()
    }

    /// How many messages were accepted, by the metrics.
    fn accepted(&self) -> i64 {
        let Some(Data::Sum(sum)) = self.metric("duly_messages_submitted_total") else { return 0 };
        let of_accepted =
            sum.data_points.iter().find(|point| text(&point.attributes, "outcome") == "accepted");
        match of_accepted.and_then(|point| point.value) {
            Some(number_data_point::Value::AsInt(count)) => count,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_trace_from_a_client_through_duly_to_a_webhook_is_seen_by_a_collector() {
    let (collector, hook) = (Server::start(), Server::start());
    let (process, _folder) = process(collector.addr, hook.addr);
    let head = format!("POST /v1/messages HTTP/1.1\r\ntraceparent: 00-{CLIENT_TRACE}-{CLIENT_SPAN}-01");
    let answer = call(&process, &head, r#"{"sink": "hook", "topic": "paid", "id": "a", "delay": "50ms"}"#);
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let arrived = hook.next();
    let mut collected = Collected::default();
    while ["accept", "deliver", "settle"].iter().any(|name| collected.span(name).is_none())
        || collected.accepted() == 0
    {
        collected.take(&collector.next());
    }
    let (accept, deliver) = (collected.span("accept").unwrap(), collected.span("deliver").unwrap());
    assert_eq!(
        (hex(&accept.trace_id), hex(&accept.parent_span_id)),
        (CLIENT_TRACE.into(), CLIENT_SPAN.into())
    );
    assert_eq!(text(&accept.attributes, "id"), "a");

    let is_accept = |link: &opentelemetry_proto::tonic::trace::v1::span::Link| {
        (&link.trace_id, &link.span_id) == (&accept.trace_id, &accept.span_id)
    };
    assert!(deliver.links.iter().any(is_accept), "{deliver:?}");
    assert!(deliver.parent_span_id.is_empty() && deliver.trace_id != accept.trace_id, "no child");
    assert_eq!(
        ["sink", "topic", "id", "outcome"].map(|name| text(&deliver.attributes, name)),
        ["hook", "paid", "a", "delivered"]
    );
    let own = format!("00-{}-{}-01", hex(&deliver.trace_id), hex(&deliver.span_id));
    assert_eq!(arrived.headers["traceparent"], own);
    assert!(collected.span("settle").unwrap().links.iter().any(is_accept));

    let Some(Data::Histogram(requests)) = collected.metric("http.server.request.duration") else {
        panic!("{:?}", collected.metrics)
    };
    let sent =
        requests.data_points.iter().find(|point| text(&point.attributes, "http.route") == "/v1/messages");
    assert_eq!(sent.unwrap().count, 1);
    assert!(collected.services.iter().all(|service| service == "shop"));
    process.signal(Signal::TERM);
    assert_eq!(process.end().0, Some(0));
}

#[test]
fn a_collector_that_hangs_or_is_away_stops_neither_delivery_nor_the_shutdown() {
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    for collector in [hangs.local_addr().unwrap(), away] {
        let hook = Server::start();
        let (process, _folder) = process(collector, hook.addr);
        // More than one request to the collector and its queue hold.
        let count = 4_000;
        let lines: String = (0..count)
            .map(|n| format!("{{\"sink\": \"hook\", \"topic\": \"t\", \"id\": \"{n}\"}}\n"))
            .collect();
        let answer = call(&process, "POST /v1/messages/batch HTTP/1.1", &lines);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let arrived = (0..count).map(|_| hook.next().headers["duly-id"].clone());
        assert_eq!(arrived.collect::<std::collections::BTreeSet<_>>().len(), count);
        let dropped = || {
            let page = call(&process, "GET /metrics HTTP/1.1", "");
            let line = "duly_otlp_spans_total{outcome=\"dropped\"} ";
            page.lines().find_map(|found| found.strip_prefix(line)?.parse::<u64>().ok()).unwrap()
        };
        while dropped() == 0 {
            thread::yield_now();
        }
        process.signal(Signal::TERM);
        let (code, words) = process.end();
        assert_eq!(code, Some(0), "{words:?}");
        assert!(words.last().unwrap().contains("stopped"), "{words:?}");
    }
}
