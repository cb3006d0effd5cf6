//! RocketMQ: a topic of four queues, made by sending to it.

#[path = "../../tests/rocketmq/reader.rs"]
pub(crate) mod reader;

use async_trait::async_trait;
use bytes::{Buf, BufMut, BytesMut};
use duly_core::Delivery;
use testkit::servers::rocketmq::{self, Options};

use crate::{
    broker::{Bare, Broker, Keep, switched_by},
    socket::Socket,
};

pub(crate) const TOPIC: &str = "orders";

pub(crate) struct Rocketmq(rocketmq::Rocketmq);

impl Rocketmq {
    pub(crate) fn new(keep: Keep) -> Self {
        let more =
            if keep == Keep::Safely { vec!["flushDiskType=SYNC_FLUSH".to_owned()] } else { Vec::new() };
        Self(rocketmq::Rocketmq::with(Options { makes_topics: true, more, ..Options::default() }))
    }
}

#[async_trait]
impl Broker for Rocketmq {
    fn name(&self) -> &'static str {
        "rocketmq"
    }

    fn config(&self) -> String {
        format!("kind = 'rocketmq'\nnamesrv = '{}'", self.0.namesrv())
    }

    fn safety(&self) -> &'static str {
        "SYNC_FLUSH"
    }

    async fn bare(&self) -> Box<dyn Bare> {
        Box::new(Remoting(Socket::to(&self.0.broker()).await))
    }

    async fn ids(&self) -> Vec<String> {
        let address = self.0.broker();
        let read = tokio::task::spawn_blocking(move || reader::read(&address, TOPIC)).await.unwrap();
        read.into_iter().map(|arrival| arrival.id.to_string()).collect()
    }

    switched_by!(0);
}

/// The protocol on one connection.
pub(crate) struct Remoting(pub(crate) Socket);

#[async_trait]
impl Bare for Remoting {
    async fn publish(&mut self, messages: &[Delivery], window: usize) {
        self.0.publish(messages, window, add, answers).await;
    }
}

/// A request to send, its header written by hand.
fn add(out: &mut BytesMut, Delivery { message, .. }: &Delivery, number: usize) {
    let (id, queue, body) = (&message.id, number % 4, message.body.as_bytes());
    let header = format!(
        r#"{{"code":310,"flag":0,"language":"OTHER","opaque":{number},"serializeTypeCurrentRPC":"JSON","version":400,"extFields":{{"a":"bare","b":"{TOPIC}","c":"TBW102","d":"4","e":"{queue}","f":"0","g":"1","h":"0","i":"KEYS\u0001{id}\u0002WAIT\u0001true\u0002","j":"0","k":"false","l":"0","m":"false"}}}}"#
    );
    out.put_u32((4 + header.len() + body.len()) as u32);
    out.put_u32(header.len() as u32);
    out.put_slice(header.as_bytes());
    out.put_slice(body);
}

/// Whole answers, each of which says `SEND_OK`.
fn answers(read: &mut BytesMut) -> usize {
    let mut count = 0;
    while let Some(length) = read.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize) {
        if read.len() < 4 + length {
            break;
        }
        read.advance(4);
        let answer = read.split_to(length);
        let good = answer.windows(9).any(|some| some == b"\"code\":0,");
        assert!(good, "{}", String::from_utf8_lossy(&answer));
        count += 1;
    }
    count
}
