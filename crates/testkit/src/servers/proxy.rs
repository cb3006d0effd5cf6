//! A wire between a client and a server that the test can cut, or on which answers get lost.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::{oneshot, watch},
};

/// A proxy on a port of its own, on a thread of its own. Dropped, it takes its connections with it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    swallows: AtomicBool,
    /// Nothing passes, either way, as long as this is so.
    held: watch::Sender<bool>,
    /// Told to every connection; each ends when it changes.
    cut: watch::Sender<u64>,
}

impl Proxy {
    /// Passes everything on to this port of the loopback.
    pub fn to(port: u16) -> Self {
        let shared = Arc::new(Shared {
            swallows: AtomicBool::new(false),
            held: watch::Sender::new(false),
            cut: watch::channel(0).0,
        });
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let theirs = shared.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                ready.send(listener.local_addr().unwrap().port()).unwrap();
                let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                tokio::select! {
                    () = accept(listener, to, theirs) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { port: is_ready.recv().unwrap(), shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Where clients go.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on the server hears everything, and its answers get lost.
    pub fn swallow_answers(&self) {
        self.shared.swallows.store(true, Ordering::SeqCst);
    }

    /// From now on answers arrive again. What was lost stays lost.
    pub fn pass_answers(&self) {
        self.shared.swallows.store(false, Ordering::SeqCst);
    }

    /// From now on nothing passes, either way, and no connection breaks: what is sent waits on the wire.
    pub fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    /// All that waited on the wire arrives, and what is sent passes again.
    pub fn release(&self) {
        self.shared.held.send_replace(false);
    }

    /// Closes every connection; new ones are welcome.
    pub fn cut(&self) {
        self.shared.cut.send_modify(|times| *times += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let mut cut = shared.cut.subscribe();
            tokio::select! {
                // However it ends: the test looks at what arrived.
                _ = join(client, to, &shared) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn join(client: TcpStream, to: SocketAddr, shared: &Shared) -> io::Result<()> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let held = || shared.held.subscribe();
    tokio::select! {
        done = copy(from_client, to_server, held(), || false) => done,
        done = copy(from_server, to_client, held(), || shared.swallows.load(Ordering::SeqCst)) => done,
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
    swallows: impl Fn() -> bool,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        // The proxy is gone only when the connection is.
        let _ = held.wait_for(|held| !held).await;
        if count == 0 {
            return Ok(());
        }
        if !swallows() {
            to.write_all(&bytes[..count]).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn answers_pass_or_wait_or_get_lost_and_connections_are_cut() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::to(server.local_addr().unwrap().port());
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        let (mut served, _) = server.accept().unwrap();
        let mut byte = [0];
        client.write_all(b"a").unwrap();
        served.read_exact(&mut byte).unwrap();
        served.write_all(b"1").unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"1");

        proxy.hold();
        client.write_all(b"h").unwrap();
        served.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        assert!(served.read_exact(&mut byte).is_err(), "it waits on the wire");
        proxy.release();
        served.set_read_timeout(None).unwrap();
        served.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"h", "and arrives late");

        proxy.swallow_answers();
        client.write_all(b"b").unwrap();
        served.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"b", "the server hears it");
        served.write_all(b"2").unwrap();
        proxy.cut();
        assert_eq!(client.read(&mut byte).unwrap_or(0), 0, "the answer is lost, and the connection closed");
    }
}
