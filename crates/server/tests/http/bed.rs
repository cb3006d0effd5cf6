//! A real server on a free port and a folder of its own, and a plain client.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use duly_server::{
    config::{Config, StoreSetup},
    serve::{self, Running},
};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Whatever does not come within this span does not come at all.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Bed {
    running: Option<Running>,
    addr: SocketAddr,
    config: Config,
    _folder: tempfile::TempDir,
}

pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl std::fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(500)]);
        write!(f, "{} {:?} {body}", self.status, self.headers)
    }
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The code of the problem, checked to be one: with its status, its words and its type.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        let code = problem["code"].as_str().unwrap().to_owned();
        let known = duly::ErrorCode::parse(&code);
        assert_eq!(
            known.map(duly::ErrorCode::status),
            Some(self.status.as_u16()),
            "{code} is not documented so"
        );
        if self.status == 429 || self.status == 503 {
            assert!(self.headers.contains_key("retry-after"));
        }
        code
    }
}

/// One call on a connection of its own.
pub(crate) async fn call(
    addr: SocketAddr,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
    headers: &[(&str, &str)],
) -> HttpResponse {
    let call = async {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", addr.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(sender);
        connection.abort();
        HttpResponse { status: parts.status, headers: parts.headers, body }
    };
    tokio::time::timeout(SOON, call).await.expect("an answer in time")
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(set: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            store: StoreSetup::in_folder(folder.path().join("data")),
            ..Config::default()
        };
        set(&mut config);
        let running = serve::start(config.clone()).await.unwrap();
        Self { addr: running.addr(), running: Some(running), config, _folder: folder }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn data(&self) -> &std::path::Path {
        self.config.data().unwrap()
    }

    pub(crate) fn duly(&self) -> &duly::Duly {
        self.running.as_ref().unwrap().duly()
    }

    pub(crate) async fn stop(&mut self) {
        self.running.take().unwrap().stop().await.unwrap();
    }

    /// The same server again, on the same folder.
    pub(crate) async fn restart(&mut self) {
        if self.running.is_some() {
            self.stop().await;
        }
        let running = serve::start(self.config.clone()).await.unwrap();
        self.addr = running.addr();
        self.running = Some(running);
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.call(Method::GET, path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> HttpResponse {
        self.call(Method::POST, path, body).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: impl Into<Bytes>) -> HttpResponse {
        self.call_with(method, path, body, &[]).await
    }

    pub(crate) async fn call_with(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
        headers: &[(&str, &str)],
    ) -> HttpResponse {
        call(self.addr, method, path, body, headers).await
    }

    /// Waits until the server says that it is ready.
    pub(crate) async fn until_ready(&self) {
        let ready = async { while self.get("/readyz").await.status != 200 {} };
        tokio::time::timeout(SOON, ready).await.expect("ready in time");
    }

    /// Writes `bytes` as they are and reads until the server closes or `until` has come.
    pub(crate) async fn raw(&self, bytes: &[u8], until: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut read = Vec::new();
        let mut buffer = [0; 4096];
        let reading = async {
            loop {
                let count = stream.read(&mut buffer).await.unwrap_or(0);
                read.extend_from_slice(&buffer[..count]);
                if count == 0 || String::from_utf8_lossy(&read).contains(until) {
                    break String::from_utf8_lossy(&read).into_owned();
                }
            }
        };
        tokio::time::timeout(SOON, reading).await.expect("an answer in time")
    }

    /// Sends a message and gives its id.
    pub(crate) async fn send(&self, body: Value) -> String {
        let answer = self.post("/v1/messages", body.to_string()).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Receives from a queue, waiting for the first.
    pub(crate) async fn receive(&self, topic: &str, max: usize) -> Vec<Value> {
        let wish = serde_json::json!({"max": max, "wait": "10s"});
        let answer = self.post(&format!("/v1/queues/{topic}/receive"), wish.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["messages"].as_array().unwrap().clone()
    }
}
