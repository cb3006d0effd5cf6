//! The servers that are measured: processes of their own.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;

/// A server that ends with this value.
pub(crate) struct Server {
    child: Child,
    pub(crate) addr: SocketAddr,
}

impl Server {
    pub(crate) fn duly(data: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_duly"));
        let addr = free();
        command.arg("serve").arg("--listen").arg(addr.to_string()).arg("--data").arg(data);
        Self::start(command, addr)
    }

    /// This program again, as the reference.
    pub(crate) fn bare() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let addr = free();
        command.arg("--bare").arg(addr.to_string());
        Self::start(command, addr)
    }

    fn start(mut command: Command, addr: SocketAddr) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while std::net::TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_err() {
            std::thread::yield_now();
        }
        Self { child, addr }
    }

    /// Memory in use, in megabytes of 10^6 bytes.
    pub(crate) fn memory_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The reference: takes the same body and answers as many bytes, and does nothing else.
pub(crate) async fn bare(addr: &str) {
    let listener = tokio::net::TcpListener::bind(addr).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let service = service_fn(async |request: Request<Incoming>| {
            let body = request.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(vec![b'x'; body.len()]))))
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
