//! Reads what a topic has, as a consumer does: it pulls, and takes the stored form apart.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use bytes::{Buf, Bytes};
use duly_core::Timestamp;
use serde_json::{Value, json};
use testkit::{servers::wait_until, sink::Arrival};

const PULL: i32 = 11;
const RUNTIME: i32 = 28;
const LAST_OFFSET: i32 = 30;
/// Queues of a topic that was made by sending.
const QUEUES: u32 = 4;

/// A connection to a broker.
pub(crate) struct Reader(TcpStream);

impl Reader {
    pub(crate) fn to(broker: &str) -> Self {
        Self(TcpStream::connect(broker).unwrap())
    }

    /// The header of the answer, and its body.
    pub(crate) fn ask(&mut self, code: i32, fields: Value) -> (Value, Bytes) {
        let header = json!({ "code": code, "extFields": fields, "flag": 0, "language": "OTHER", "opaque": 1,
            "serializeTypeCurrentRPC": "JSON", "version": 400 });
        let header = serde_json::to_vec(&header).unwrap();
        let mut frame = ((header.len() + 4) as u32).to_be_bytes().to_vec();
        frame.extend((header.len() as u32).to_be_bytes());
        frame.extend(header);
        self.0.write_all(&frame).unwrap();
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut answer).unwrap();
        let mut answer = Bytes::from(answer);
        let length = answer.get_u32() as usize;
        (serde_json::from_slice(&answer.split_to(length)).unwrap(), answer)
    }

    /// How far behind what is taken the queues are.
    fn is_behind(&mut self) -> bool {
        let (_, body) = self.ask(RUNTIME, json!({}));
        // It says nothing while it is still coming up.
        let status: Value = serde_json::from_slice(&body).unwrap_or_default();
        status["table"]["dispatchBehindBytes"] != "0"
    }

    /// Where to go on, and what is there from `at` on, in its stored form.
    pub(crate) fn pull(&mut self, topic: &str, queue: u32, at: u64) -> (u64, Bytes) {
        let fields = json!({ "consumerGroup": "reader", "topic": topic, "queueId": queue.to_string(),
            "queueOffset": at.to_string(), "maxMsgNums": "1000", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG" });
        let (header, body) = self.ask(PULL, fields);
        assert!(matches!(header["code"].as_i64(), Some(0 | 20)), "{header}");
        (header["extFields"]["nextBeginOffset"].as_str().unwrap().parse().unwrap(), body)
    }

    /// Waits until the broker has put all that it took into its queues.
    pub(crate) fn wait(&mut self) {
        wait_until("all is in its queue", Duration::from_secs(60), || !self.is_behind());
    }

    fn queue(&mut self, topic: &str, queue: u32) -> Vec<Arrival> {
        let (header, _) = self.ask(LAST_OFFSET, json!({ "topic": topic, "queueId": queue.to_string() }));
        let last: u64 = header["extFields"]["offset"].as_str().unwrap_or("0").parse().unwrap();
        let (mut at, mut all) = (0, Vec::new());
        while at < last {
            let (next, mut body) = self.pull(topic, queue, at);
            while body.has_remaining() {
                all.push(arrival(&mut body));
            }
            at = next;
        }
        all
    }
}

/// All that a topic has, once the broker has put all that it took into its queues.
pub(crate) fn read(broker: &str, topic: &str) -> Vec<Arrival> {
    let mut reader = Reader::to(broker);
    reader.wait();
    (0..QUEUES).flat_map(|queue| reader.queue(topic, queue)).collect()
}

/// A message in its stored form: its topic, its body and its properties.
pub(crate) fn stored(stored: &mut Bytes) -> (String, Bytes, BTreeMap<String, String>) {
    let mut one = stored.split_to((&stored[..4]).get_u32() as usize);
    let is_second_form = (&one[4..8]).get_i32() == -626_843_477;
    // Length, form, sum, queue, flag, offset, place, flags, time, from, time, by, tries, transaction.
    one.advance(4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 8 + 8 + 4 + 8);
    let length = one.get_u32() as usize;
    let body = one.split_to(length);
    let length = if is_second_form { usize::from(one.get_u16()) } else { usize::from(one.get_u8()) };
    let topic = text(&one.split_to(length));
    let length = usize::from(one.get_u16());
    let all = text(&one.split_to(length));
    let pairs = all.split('\u{2}').filter_map(|pair| pair.split_once('\u{1}'));
    (topic, body, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The same, as it is for a consumer.
pub(crate) fn arrival(bytes: &mut Bytes) -> Arrival {
    let (topic, body, properties) = stored(bytes);
    assert_eq!(properties["KEYS"], properties["duly-id"]);
    Arrival {
        id: properties["duly-id"].parse().unwrap(),
        due: Timestamp::from_millis(properties["duly-due"].parse().unwrap()),
        attempt: properties["duly-attempt"].parse().unwrap(),
        topic,
        tag: properties.get("TAGS").cloned(),
        key: properties.get("__SHARDINGKEY").cloned(),
        content_type: properties["content-type"].clone(),
        body,
        properties,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
