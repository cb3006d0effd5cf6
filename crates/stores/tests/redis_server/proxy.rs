//! Between a store and its Redis: a way that breaks when the test says so.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A way to Redis.
pub(crate) struct Proxy {
    port: u16,
    cut_after: Arc<Mutex<Option<&'static str>>>,
}

impl Proxy {
    pub(crate) async fn start(redis: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut_after: Arc<Mutex<Option<&'static str>>> = Arc::default();
        let shared = cut_after.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", redis)).await {
                    tokio::spawn(carry(client, server, shared.clone()));
                }
            }
        });
        Self { port, cut_after }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The next request that holds `word` reaches Redis; its answer is thrown away and the connection with it.
    pub(crate) fn cut_after(&self, word: &'static str) {
        *self.cut_after.lock().unwrap() = Some(word);
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, cut_after: Arc<Mutex<Option<&'static str>>>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut cutting = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => match read {
                Ok(len) if len > 0 => {
                    cutting |= is_last(&up[..len], &cut_after);
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

/// Whether this request is the one to cut after; from then on nothing is cut.
fn is_last(request: &[u8], cut_after: &Mutex<Option<&'static str>>) -> bool {
    let mut word = cut_after.lock().unwrap();
    let found = word.is_some_and(|word| request.windows(word.len()).any(|part| part == word.as_bytes()));
    if found {
        *word = None;
    }
    found
}
