//! ActiveMQ: a queue in KahaDB, whose journal is synced before each receipt.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
};

use async_trait::async_trait;
use bytes::{Buf, BufMut, BytesMut};
use duly_core::Delivery;
use testkit::servers::activemq;

use crate::{
    broker::{Bare, Broker, switched_by},
    socket::Socket,
};

const QUEUE: &str = "orders.new";
const HELLO: &str = "CONNECT\naccept-version:1.2\nhost:x\nlogin:duly\npasscode:p@ss\n\n\0";
/// The last message of the queue, put there by whoever reads it.
const MARK: &str = "mark";

pub(crate) struct Activemq(activemq::Activemq);

impl Activemq {
    pub(crate) fn new() -> Self {
        Self(activemq::Activemq::single())
    }
}

#[async_trait]
impl Broker for Activemq {
    fn name(&self) -> &'static str {
        "activemq"
    }

    fn config(&self) -> String {
        format!("kind = 'activemq'\nurl = '{}'", self.0.url())
    }

    fn topic(&self) -> &'static str {
        QUEUE
    }

    fn safety(&self) -> &'static str {
        "KahaDB, journal synced"
    }

    async fn bare(&self) -> Box<dyn Bare> {
        let mut socket = Socket::to(&format!("127.0.0.1:{}", self.0.port())).await;
        socket.greet(HELLO.as_bytes(), |read| read.contains(&0)).await;
        Box::new(Stomp(socket))
    }

    async fn ids(&self) -> Vec<String> {
        let port = self.0.port();
        tokio::task::spawn_blocking(move || read(port)).await.unwrap()
    }

    switched_by!(0);
}

/// Takes all out of the queue.
fn read(port: u16) -> Vec<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mark = format!("SEND\ndestination:/queue/{QUEUE}\npersistent:true\nduly-id:{MARK}\n\n\0");
    let subscribe = format!("SUBSCRIBE\nid:0\nack:auto\ndestination:/queue/{QUEUE}\n\n\0");
    stream.write_all([HELLO, &mark, &subscribe].concat().as_bytes()).unwrap();
    let (mut stream, mut ids) = (BufReader::new(stream), Vec::new());
    loop {
        let mut frame = Vec::new();
        assert!(stream.read_until(0, &mut frame).unwrap() > 0, "the broker closed the connection");
        let frame = String::from_utf8_lossy(&frame);
        assert!(!frame.trim_start().starts_with("ERROR"), "{frame}");
        match frame.lines().find_map(|line| line.strip_prefix("duly-id:")) {
            Some(MARK) => return ids,
            Some(id) => ids.push(id.to_owned()),
            None => {}
        }
    }
}

struct Stomp(Socket);

#[async_trait]
impl Bare for Stomp {
    async fn publish(&mut self, messages: &[Delivery], window: usize) {
        self.0.publish(messages, window, add, answers).await;
    }
}

fn add(out: &mut BytesMut, Delivery { message, .. }: &Delivery, number: usize) {
    let (id, body) = (&message.id, message.body.as_bytes());
    let head = format!(
        "SEND\ndestination:/queue/{QUEUE}\npersistent:true\nreceipt:{number}\nduly-id:{id}\ncontent-length:{}\n\n",
        body.len()
    );
    out.put_slice(head.as_bytes());
    out.put_slice(body);
    out.put_u8(0);
}

/// Whole frames, each of which is a receipt.
fn answers(read: &mut BytesMut) -> usize {
    let mut count = 0;
    while let Some(end) = read.iter().position(|byte| *byte == 0) {
        let frame = read.split_to(end);
        read.advance(1);
        assert!(frame.trim_ascii_start().starts_with(b"RECEIPT"), "{}", String::from_utf8_lossy(&frame));
        count += 1;
    }
    count
}
