//! A client that costs as little as it can: raw sockets, requests made beforehand, one task a connection.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use testkit::bench::process::now;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

/// What a run measured.
pub(crate) struct Measured {
    /// Answers per second.
    pub(crate) per_second: f64,
    /// How long each took, in microseconds, sorted.
    pub(crate) micros: Vec<f64>,
}

/// One keep-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::with_capacity(1 << 20) }
    }

    /// Sends a request and reads the whole answer: its body.
    pub(crate) async fn call(&mut self, request: &[u8]) -> &[u8] {
        self.stream.write_all(request).await.unwrap();
        self.buffer.clear();
        let head = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end + 4;
            }
            self.read().await;
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]).to_lowercase();
        assert!(text.starts_with("http/1.1 2"), "{}", String::from_utf8_lossy(&self.buffer));
        match text.split("content-length: ").nth(1) {
            Some(rest) => {
                let length: usize = rest.lines().next().unwrap().trim().parse().unwrap();
                while self.buffer.len() < head + length {
                    self.read().await;
                }
            }
            None if text.contains("chunked") => {
                while !self.buffer.ends_with(b"\r\n0\r\n\r\n") {
                    self.read().await;
                }
            }
            None => {}
        }
        &self.buffer[head..]
    }

    async fn read(&mut self) {
        let count = self.stream.read_buf(&mut self.buffer).await.unwrap();
        assert_ne!(count, 0, "the server closed the connection");
    }
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|window| window == words)
}

/// A whole POST.
pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// `connections` clients that send `request` again and again.
pub(crate) async fn run(addr: SocketAddr, connections: usize, span: Duration, request: Vec<u8>) -> Measured {
    let mut clients = JoinSet::new();
    let begin = now();
    for _ in 0..connections {
        let request = request.clone();
        clients.spawn(async move {
            let mut connection = Connection::open(addr).await;
            let mut micros = Vec::new();
            while begin.elapsed() < span {
                let start = now();
                connection.call(&request).await;
                micros.push(since(start));
            }
            micros
        });
    }
    let mut micros = clients.join_all().await.concat();
    let seconds = begin.elapsed().as_secs_f64();
    micros.sort_unstable_by(f64::total_cmp);
    Measured { per_second: micros.len() as f64 / seconds, micros }
}

/// `clients` that call at a steady pace, `per_second` together, and tell how long each call took.
pub(crate) async fn paced(
    addr: SocketAddr,
    clients: u32,
    per_second: u32,
    span: Duration,
    request: &[u8],
) -> Vec<f64> {
    let mut set = JoinSet::new();
    for _ in 0..clients {
        let request = request.to_vec();
        set.spawn(async move {
            let mut connection = Connection::open(addr).await;
            let mut ticks = tokio::time::interval(Duration::from_secs(1) * clients / per_second);
            let (begin, mut micros) = (now(), Vec::new());
            while begin.elapsed() < span {
                ticks.tick().await;
                let start = now();
                connection.call(&request).await;
                micros.push(since(start));
            }
            micros
        });
    }
    let mut micros = set.join_all().await.concat();
    micros.sort_unstable_by(f64::total_cmp);
    micros
}

fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
