//! A webhook's far end: a small HTTP server that writes down what it is given.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use duly_server::config::{Config, SinkSetup};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::mpsc};

/// What came: the path, the headers, the body.
pub(crate) type Arrived = (String, HeaderMap, Bytes);

pub(crate) struct Target {
    addr: SocketAddr,
    status: Arc<Mutex<StatusCode>>,
    arrived: tokio::sync::Mutex<mpsc::UnboundedReceiver<Arrived>>,
}

impl Target {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let status = Arc::new(Mutex::new(StatusCode::NO_CONTENT));
        let (sender, arrived) = mpsc::unbounded_channel();
        let answers = status.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, answers) = (sender.clone(), answers.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (sender, answers) = (sender.clone(), answers.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let _ = sender.send((parts.uri.path().to_owned(), parts.headers, body));
                        let status = *answers.lock().unwrap();
                        Ok::<_, hyper::Error>(
                            Response::builder().status(status).body(Full::<Bytes>::default()).unwrap(),
                        )
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { addr, status, arrived: arrived.into() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/base", self.addr)
    }

    /// Adds a sink of this name that delivers here.
    pub(crate) fn configure(&self, config: &mut Config, name: &str) {
        let written = serde_json::json!({"kind": "webhook", "url": self.url(), "allow_private": true});
        let setup = SinkSetup::of(serde_json::from_value(written).unwrap());
        config.sinks.insert(name.parse().unwrap(), setup);
    }

    pub(crate) fn answer(&self, status: StatusCode) {
        *self.status.lock().unwrap() = status;
    }

    pub(crate) async fn next(&self) -> Arrived {
        let mut arrived = self.arrived.lock().await;
        tokio::time::timeout(crate::bed::SOON, arrived.recv()).await.expect("it arrives").unwrap()
    }
}
