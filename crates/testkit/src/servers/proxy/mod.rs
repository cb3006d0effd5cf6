//! A wire between a client and a server that the test can cut, or on which answers get lost.

mod trap;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::{oneshot, watch},
};

use trap::{Moment, SeenBytes, Trap};

/// A proxy on a port of its own, on a thread of its own. Dropped, it takes its connections with it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<ProxyState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ProxyState {
    swallows: AtomicBool,
    /// Whoever comes is sent away.
    shut: AtomicBool,
    /// Nothing passes, either way, as long as this is so.
    held: watch::Sender<bool>,
    /// It will be so when the wire next breaks at a needle.
    will_hold: AtomicBool,
    /// Told to every connection; each ends when it changes.
    cut: watch::Sender<u64>,
    trap: Mutex<Trap>,
    /// The servers' ends of wires that broke on a needle: a server that saw its client go might take back what it was told.
    left_open: Mutex<Vec<OwnedWriteHalf>>,
}

impl Proxy {
    /// Passes everything on to this port of the loopback.
    pub fn to(port: u16) -> Self {
        Self::between(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), port)
    }

    /// The same, on this port of another address of the loopback: for servers that tell clients where to come back to, and
    /// can be told another address to tell, but no other port.
    pub fn beside(address: Ipv4Addr, port: u16) -> Self {
        Self::between(SocketAddr::from((address, port)), port)
    }

    fn between(here: SocketAddr, port: u16) -> Self {
        let shared = Arc::new(ProxyState {
            swallows: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            held: watch::Sender::new(false),
            will_hold: AtomicBool::new(false),
            cut: watch::channel(0).0,
            trap: Mutex::default(),
            left_open: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let theirs = shared.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind(here).await.unwrap();
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

    /// Closes every connection, and from now on each new one as it comes: to clients the server is gone.
    pub fn shut(&self) {
        self.shared.shut.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// New connections are welcome again.
    pub fn open(&self) {
        self.shared.shut.store(false, Ordering::SeqCst);
    }

    /// The next `times` that a client sends bytes with `needle` in them, such as `COMMIT`, the server never hears of it: the
    /// connection is closed instead.
    ///
    /// The needle is looked for in what is on the wire, byte by byte. A prepared statement has its text there only when it
    /// is prepared; when it is executed there are its parameters.
    pub fn cut_before(&self, needle: &[u8], times: usize) {
        self.set(Moment::Before, needle, times);
    }

    /// The same, and the server gets the bytes, too. The client's connection is closed at once, and the server does not know:
    /// whether it has already done what they say, nobody knows, and it may do so much later, if it is paused.
    pub fn cut_on(&self, needle: &[u8], times: usize) {
        self.set(Moment::On, needle, times);
    }

    /// The same, and the server gets the bytes, does what they say and answers. The answer is lost with the connection.
    ///
    /// That is so for clients that wait for each answer before they send more, as those of databases do: the first bytes that
    /// come back are taken for the answer.
    pub fn cut_after(&self, needle: &[u8], times: usize) {
        self.set(Moment::After, needle, times);
    }

    /// When the wire next breaks at a needle, nothing passes any more, on new connections neither, until it is
    /// [released](Self::release): so the test has time for what happens meanwhile.
    pub fn then_hold(&self) {
        self.shared.will_hold.store(true, Ordering::SeqCst);
    }

    /// How many connections have been closed because of a needle.
    pub fn needles_met(&self) -> usize {
        self.shared.trap.lock().unwrap().met()
    }

    fn set(&self, moment: Moment, needle: &[u8], times: usize) {
        self.shared.trap.lock().unwrap().set(moment, needle, times);
    }
}

impl ProxyState {
    /// Before the client can see it, and when the server has done its part.
    fn breaks(&self) {
        if self.will_hold.swap(false, Ordering::SeqCst) {
            self.held.send_replace(true);
        }
        // Last: whoever sees the count may release the wire, and that must come after it was held.
        self.trap.lock().unwrap().broke();
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

async fn accept(listener: TcpListener, to: SocketAddr, shared: Arc<ProxyState>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        if shared.shut.load(Ordering::SeqCst) {
            continue;
        }
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

async fn join(client: TcpStream, to: SocketAddr, shared: &ProxyState) -> io::Result<()> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let ends = AtomicBool::new(false);
    tokio::select! {
        done = requests(from_client, to_server, shared, &ends) => done,
        done = answers(from_server, to_client, shared, &ends) => done,
    }
}

/// `ends` is set when the next answer is the one that gets lost with the connection.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &ProxyState,
    ends: &AtomicBool,
) -> io::Result<()> {
    let mut held = shared.held.subscribe();
    let mut seen = SeenBytes::default();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = pass(&mut from, &mut bytes, &mut held).await?;
        let moment = shared.trap.lock().unwrap().meets(&mut seen, &bytes[..count]);
        if moment == Some(Moment::Before) {
            shared.breaks();
        }
        if count == 0 || moment == Some(Moment::Before) {
            return Ok(());
        }
        // Before the server can answer.
        ends.fetch_or(moment == Some(Moment::After), Ordering::SeqCst);
        to.write_all(&bytes[..count]).await?;
        if moment == Some(Moment::On) {
            shared.left_open.lock().unwrap().push(to);
            shared.breaks();
            return Ok(());
        }
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &ProxyState,
    ends: &AtomicBool,
) -> io::Result<()> {
    let mut held = shared.held.subscribe();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = pass(&mut from, &mut bytes, &mut held).await?;
        if ends.load(Ordering::SeqCst) {
            shared.breaks();
            return Ok(());
        }
        if count == 0 {
            return Ok(());
        }
        if !shared.swallows.load(Ordering::SeqCst) {
            to.write_all(&bytes[..count]).await?;
        }
    }
}

/// The next bytes, once they may pass.
async fn pass(
    from: &mut OwnedReadHalf,
    bytes: &mut [u8],
    held: &mut watch::Receiver<bool>,
) -> io::Result<usize> {
    let count = from.read(bytes).await?;
    // The proxy is gone only when the connection is.
    let _ = held.wait_for(|held| !held).await;
    Ok(count)
}

#[cfg(test)]
mod tests;
