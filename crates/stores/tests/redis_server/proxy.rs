//! Between a store and its Redis: a way that breaks when the test says so.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU16, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A way to Redis.
pub(crate) struct Proxy {
    port: u16,
    to: Arc<AtomicU16>,
    trap: Arc<Trap>,
}

/// Which request is the last of its connection, and what it was.
#[derive(Default)]
struct Trap {
    cut_after: Mutex<Option<&'static str>>,
    caught: Mutex<Vec<u8>>,
}

impl Proxy {
    pub(crate) async fn start(redis: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (trap, to) = (Arc::<Trap>::default(), Arc::new(AtomicU16::new(redis)));
        let (its_trap, its_to) = (trap.clone(), to.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let redis = its_to.load(Ordering::SeqCst);
                if let Ok(server) = TcpStream::connect(("127.0.0.1", redis)).await {
                    tokio::spawn(carry(client, server, its_trap.clone()));
                }
            }
        });
        Self { port, to, trap }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The next request that holds `word` reaches Redis; its answer is thrown away and the connection with it.
    pub(crate) fn cut_after(&self, word: &'static str) {
        *self.trap.cut_after.lock().unwrap() = Some(word);
    }

    /// The request that the connection was last cut after.
    pub(crate) fn caught(&self) -> Vec<u8> {
        self.trap.caught.lock().unwrap().clone()
    }

    /// New connections go to this server, as when a virtual address moves; those that stand stay where they are.
    pub(crate) fn move_to(&self, redis: u16) {
        self.to.store(redis, Ordering::SeqCst);
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, trap: Arc<Trap>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut cutting = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => match read {
                Ok(len) if len > 0 => {
                    cutting |= trap.is_last(&up[..len]);
                    if server.write_all(&up[..len]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            read = server.read(&mut down) => match read {
                Ok(len) if len > 0 && !cutting => {
                    if client.write_all(&down[..len]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

impl Trap {
    /// Whether this request is the one to cut after; from then on nothing is cut.
    fn is_last(&self, request: &[u8]) -> bool {
        let mut word = self.cut_after.lock().unwrap();
        let found = word.is_some_and(|word| request.windows(word.len()).any(|part| part == word.as_bytes()));
        if found {
            *word = None;
            *self.caught.lock().unwrap() = request.to_vec();
        }
        found
    }
}
