//! The demo's webhook receiver, which can be stopped and started again at the same address.

use std::{convert::Infallible, io, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    task::{JoinHandle, JoinSet},
};

use crate::{Failure, clock};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// A message that arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) id: String,
    pub(super) attempt: u32,
    due_us: u64,
    at_us: u64,
}

/// Receives webhooks on a port of this machine.
pub(super) struct Receiver {
    addr: SocketAddr,
    arrivals: UnboundedReceiver<Arrival>,
    task: JoinHandle<()>,
    /// Dropped, it ends the task.
    stop: oneshot::Sender<()>,
}

/// A receiver that is away.
pub(super) struct Stopped {
    /// Bound and not listening: connections are refused, and no other program takes the port.
    socket: TcpSocket,
}

impl Receiver {
    /// Listens on a free port.
    pub(super) fn start() -> Result<Self, Failure> {
        let socket = bind(SocketAddr::from(([127, 0, 0, 1], 0))).map_err(|e| cannot_listen(&e))?;
        Stopped { socket }.start()
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Closes the port and every connection, and returns when that is done.
    pub(super) async fn stop(self) -> Result<Stopped, Failure> {
        drop(self.stop);
        self.task.await.map_err(|e| Failure::failed(format!("the webhook receiver ended badly: {e}")))?;
        Ok(Stopped { socket: bind(self.addr).map_err(|e| cannot_listen(&e))? })
    }

    /// Waits for the next message.
    pub(super) async fn next(&mut self) -> Result<Arrival, Failure> {
        let arrival = self.arrivals.recv().await;
        let arrival = arrival.ok_or_else(|| Failure::failed("the webhook receiver has ended"))?;
        if arrival.at_us < arrival.due_us {
            return Err(Failure::failed(format!("{} came before its time: please report this", arrival.id)));
        }
        Ok(arrival)
    }
}

impl Stopped {
    /// Listens again where it did before.
    pub(super) fn start(self) -> Result<Receiver, Failure> {
        let listener = self.socket.listen(BACKLOG).map_err(|e| cannot_listen(&e))?;
        let addr = listener.local_addr().map_err(|e| cannot_listen(&e))?;
        let (arrived, arrivals) = unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        Ok(Receiver { addr, arrivals, task: tokio::spawn(serve(listener, arrived, stopped)), stop })
    }
}

fn bind(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Connections that were closed a moment ago still count as users of the port.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

fn cannot_listen(error: &io::Error) -> Failure {
    Failure::failed(format!("the webhook receiver cannot listen on this machine: {error}"))
}

async fn serve(listener: TcpListener, arrived: UnboundedSender<Arrival>, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = &mut stopped => break,
        };
        let Ok((stream, _)) = accepted else { break };
        let arrived = arrived.clone();
        connections.spawn(async move {
            let answer = service_fn(|request| answer(request, &arrived));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn answer(
    request: Request<Incoming>,
    arrived: &UnboundedSender<Arrival>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let arrival = arrival(request.headers(), clock::now_us());
    // A probe carries no message.
    let whole = request.into_body().collect().await.is_ok();
    if let Some(arrival) = arrival.filter(|_| whole) {
        let _ = arrived.send(arrival);
    }
    Ok(Response::new(Empty::new()))
}

fn arrival(headers: &HeaderMap, at_us: u64) -> Option<Arrival> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Some(Arrival {
        id: text("duly-id")?.to_owned(),
        attempt: text("duly-attempt")?.parse().ok()?,
        due_us: text("duly-due")?.parse::<u64>().ok()?.saturating_mul(1_000),
        at_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_receiver_that_was_stopped_refuses_connections_until_it_starts_at_the_same_address() {
        let receiver = Receiver::start().unwrap();
        let addr = receiver.addr();
        let kept = tokio::net::TcpStream::connect(addr).await.unwrap();
        let stopped = receiver.stop().await.unwrap();
        let refused = tokio::net::TcpStream::connect(addr).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        kept.readable().await.unwrap();
        assert!(matches!(kept.try_read(&mut [0; 1]), Ok(0) | Err(_)), "a kept connection is closed, too");
        let receiver = stopped.start().unwrap();
        assert_eq!(receiver.addr(), addr);
        tokio::net::TcpStream::connect(addr).await.unwrap();
    }
}
