//! The bare loop of protocols that have no client crate: frames out, answers in, so many under way.

use bytes::{Buf, BytesMut};
use duly_core::Delivery;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Put together before it is written.
const PIECE: usize = 64 * 1024;

/// A connection, and what was read and not yet understood.
pub(crate) struct Socket {
    stream: TcpStream,
    read: BytesMut,
}

impl Socket {
    pub(crate) async fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, read: BytesMut::new() }
    }

    /// Says hello, and reads until the answer is whole, which is passed over.
    pub(crate) async fn greet(&mut self, hello: &[u8], is_whole: impl Fn(&[u8]) -> bool + Send) {
        self.stream.write_all(hello).await.unwrap();
        while !is_whole(&self.read) {
            assert!(self.stream.read_buf(&mut self.read).await.unwrap() > 0, "the broker does not let us in");
        }
        self.read.clear();
    }

    /// `add` puts a message and its number into a frame; `answers` takes whole answers from the front and says how many were good.
    pub(crate) async fn publish(
        &mut self,
        messages: &[Delivery],
        window: usize,
        add: impl Fn(&mut BytesMut, &Delivery, usize) + Send,
        answers: impl Fn(&mut BytesMut) -> usize + Send,
    ) {
        let (mut from, mut to) = self.stream.split();
        let (mut sent, mut answered, mut out) = (0, 0, BytesMut::new());
        while answered < messages.len() {
            while sent < messages.len() && sent - answered < window && out.len() < PIECE {
                add(&mut out, &messages[sent], sent);
                sent += 1;
            }
            tokio::select! {
                count = from.read_buf(&mut self.read) => {
                    assert!(count.unwrap() > 0, "the broker closed the connection");
                    answered += answers(&mut self.read);
                }
                count = to.write_buf(&mut out), if out.has_remaining() => assert!(count.unwrap() > 0),
            }
        }
    }
}
