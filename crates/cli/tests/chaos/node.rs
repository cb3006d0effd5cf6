//! One node: the real binary with a file of its own.

use std::{fs, time::Duration};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use testkit::servers::program::Program;
use tokio::net::TcpStream;

/// How long a node's right lasts without a word from it.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// Claimed and not settled, at most, for each sink of a node: what one fault of one node can leave twice at the webhook.
pub(crate) const IN_FLIGHT: usize = 64;
/// Whoever gets no answer within this asks another node.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);

/// Where a node finds what it needs.
#[derive(Debug, Clone)]
pub(crate) struct Ways {
    /// The store, in the words of `[store]`.
    pub(crate) store: String,
    /// Streams in the store's own Redis, if that is where it is.
    pub(crate) here: String,
    /// The streams in another Redis.
    pub(crate) there: String,
    /// The webhook.
    pub(crate) hook: String,
}

/// A status and what was said with it, or why there is no answer.
pub(crate) type Answered = Result<(u16, Value), String>;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    program: Program,
}

impl Node {
    /// A node that does not run yet.
    pub(crate) fn new(name: &str, ways: &Ways) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_duly"));
        fs::write(program.folder().join("duly.toml"), settings(name, program.port(), ways)).unwrap();
        Self { name: name.into(), program }
    }

    pub(crate) fn start(&self) {
        let file = self.program.folder().join("duly.toml").display().to_string();
        self.program.start(&["serve".into(), "--config".into(), file]);
    }

    /// kill -9.
    pub(crate) fn kill(&self) {
        self.program.kill();
    }

    /// SIGSTOP.
    pub(crate) fn pause(&self) {
        self.program.pause();
    }

    /// SIGCONT.
    pub(crate) fn cont(&self) {
        self.program.cont();
    }

    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.call(Method::GET, path, String::new()).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: String) -> Answered {
        let (status, answer) = self.ask(method, path, body).await?;
        Ok((status, serde_json::from_slice(&answer).unwrap_or_default()))
    }

    /// The sum of a metric, over whatever it is told apart by; nothing if the node does not answer or has none of that name.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.ask(Method::GET, "/metrics", String::new()).await.ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_of = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let mut values =
            text.lines().filter(is_of).map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).peekable();
        values.peek()?;
        values.sum()
    }

    /// Asks on a connection of its own: what a node does about one does not touch the others.
    async fn ask(&self, method: Method, path: &str, body: String) -> Result<(u16, Bytes), String> {
        let host = format!("127.0.0.1:{}", self.program.port());
        let call = async {
            let stream = TcpStream::connect(&host).await.map_err(|error| error.to_string())?;
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
            let connection = tokio::spawn(connection);
            let request = Request::builder().method(method).uri(path).header("host", &host);
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
            connection.abort();
            Ok((status, body))
        };
        tokio::time::timeout(ANSWER_WITHIN, call).await.unwrap_or_else(|_| Err("no answer in time".into()))
    }

    /// Whether it says that it can do its work.
    pub(crate) async fn is_ready(&self) -> bool {
        self.get("/readyz").await.is_ok_and(|(status, _)| status == 200)
    }
}

/// A store in the Redis at `url`.
pub(crate) fn redis_at(url: &str) -> String {
    format!("kind = \"redis\"\nredis = \"{url}\"")
}

fn settings(name: &str, port: u16, Ways { store, here, there, hook }: &Ways) -> String {
    let (lease, timeout, request) = (LEASE.as_millis(), LEASE.as_millis() * 6 / 10, LEASE.as_millis() / 2);
    // No fault may use up the tries of a message, and none may make it wait for long.
    let usual = format!(
        "timeout = {timeout}\nrequest_timeout = {request}\nin_flight = {IN_FLIGHT}\nbatch = 16\n\
         retry = {{ attempts = 1000, backoff = \"fixed\", min = \"100ms\", max = \"300ms\" }}"
    );
    format!(
        r#"
listen = "127.0.0.1:{port}"
[cluster]
node = "{name}"
[store]
{store}
lease = {lease}
shards = 8
[sinks.here]
kind = "redis_streams"
url = "{here}"
{usual}
[sinks.there]
kind = "redis_streams"
url = "{there}"
{usual}
[sinks.hook]
kind = "webhook"
url = "{hook}"
allow_private = true
headers = {{ x-node = "{name}" }}
{usual}
"#
    )
}
