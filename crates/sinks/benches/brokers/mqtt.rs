//! Mosquitto: a subscriber that is away, for whom everything is kept.

#[expect(dead_code, reason = "only the ids are looked at here")]
#[path = "../../tests/mqtt/reader.rs"]
mod reader;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::{Buf, BufMut, BytesMut};
use duly_core::Delivery;
use reader::Reader;
use testkit::servers::mosquitto;

use crate::{
    broker::{Bare, Broker, Keep, switched_by},
    socket::Socket,
};

const TOPIC: &str = "orders";
/// It writes its whole memory each time: after every change, as tests have it, it would do nothing else.
const SOMETIMES: &str = "autosave_on_changes false\nautosave_interval 1800";
const OFTEN: &str = "autosave_on_changes true\nautosave_interval 1000";

pub(crate) struct Mqtt {
    server: mosquitto::Mosquitto,
    reader: Arc<Mutex<Reader>>,
}

impl Mqtt {
    pub(crate) fn new(keep: Keep) -> Self {
        let server = mosquitto::Mosquitto::with(if keep == Keep::Safely { OFTEN } else { SOMETIMES });
        let reader = Arc::new(Mutex::new(Reader::of(server.port(), TOPIC)));
        Self { server, reader }
    }
}

#[async_trait]
impl Broker for Mqtt {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn config(&self) -> String {
        format!("kind = 'mqtt'\nurl = '{}'", self.server.url())
    }

    fn safety(&self) -> &'static str {
        "saved after 1000 changes"
    }

    /// It acknowledges before it writes anything down.
    fn keeps_what_it_acknowledged(&self) -> bool {
        false
    }

    async fn bare(&self) -> Box<dyn Bare> {
        let mut socket = Socket::to(&format!("127.0.0.1:{}", self.server.port())).await;
        // Version 5, a clean start, user and password, a name of the broker's choice.
        let hello = b"\x10\x19\0\x04MQTT\x05\xc2\0\0\0\0\0\0\x04duly\0\x04p@ss";
        socket.greet(hello, |read| read.len() > 2 && read.len() >= 2 + usize::from(read[1])).await;
        Box::new(Publisher(socket))
    }

    async fn ids(&self) -> Vec<String> {
        let reader = self.reader.clone();
        let read = tokio::task::spawn_blocking(move || reader.lock().unwrap().read()).await.unwrap();
        read.into_iter().map(|published| published.user["duly-id"].clone()).collect()
    }

    switched_by!(server);
}

struct Publisher(Socket);

#[async_trait]
impl Bare for Publisher {
    async fn publish(&mut self, messages: &[Delivery], window: usize) {
        self.0.publish(messages, window, add, answers).await;
    }
}

/// PUBLISH with QoS 1 and one user property.
fn add(out: &mut BytesMut, Delivery { message, .. }: &Delivery, number: usize) {
    let (id, body) = (message.id.as_str(), message.body.as_bytes());
    let properties = 1 + 2 + "duly-id".len() + 2 + id.len();
    let length = 2 + TOPIC.len() + 2 + 1 + properties + body.len();
    assert!(properties < 128 && length < 16_384, "small messages only");
    out.put_slice(&[0x32, (length % 128) as u8 | 0x80, (length / 128) as u8]);
    text(out, TOPIC);
    out.put_u16((number % 65_535) as u16 + 1);
    out.put_slice(&[properties as u8, 0x26]);
    text(out, "duly-id");
    text(out, id);
    out.put_slice(body);
}

fn text(out: &mut BytesMut, text: &str) {
    out.put_u16(text.len() as u16);
    out.put_slice(text.as_bytes());
}

/// Whole packets, each of which is a PUBACK of success.
fn answers(read: &mut BytesMut) -> usize {
    let mut count = 0;
    while read.len() >= 2 && read.len() >= 2 + usize::from(read[1]) {
        let rest = usize::from(read[1]);
        assert!(read[0] == 0x40 && (rest < 3 || read[4] < 0x80), "{read:?}");
        read.advance(2 + rest);
        count += 1;
    }
    count
}
