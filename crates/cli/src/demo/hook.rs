//! The demo's webhook: a receiver of a few lines.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::mpsc::UnboundedSender};

use super::DemoEvent;
use crate::{Failure, clock};

/// Listens on a free port of this machine, until the process ends.
pub(super) async fn listen(seen: UnboundedSender<DemoEvent>) -> Result<SocketAddr, Failure> {
    let fault = |e: std::io::Error| Failure::failed(format!("cannot listen on this machine: {e}"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(fault)?;
    let addr = listener.local_addr().map_err(fault)?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request| answer(request, &seen));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    Ok(addr)
}

async fn answer(
    request: Request<Incoming>,
    seen: &UnboundedSender<DemoEvent>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let now_us = clock::now_us();
    let noted = note(request.headers(), now_us);
    // A probe carries no message.
    let whole = request.into_body().collect().await.is_ok();
    if let Some(noted) = noted.filter(|_| whole) {
        let _ = seen.send(noted);
    }
    Ok(Response::new(Empty::new()))
}

fn note(headers: &HeaderMap, now_us: u64) -> Option<DemoEvent> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let id = text("duly-id")?.to_owned();
    let due_us = text("duly-due")?.parse::<u64>().ok()?.saturating_mul(1_000);
    let attempt = text("duly-attempt").and_then(|text| text.parse().ok()).unwrap_or(1);
    if now_us < due_us {
        return Some(DemoEvent::Early { id });
    }
    let late_us = (attempt == 1).then(|| now_us - due_us);
    Some(DemoEvent::Delivered { id, attempt, late_us, by: "by an HTTP POST" })
}
