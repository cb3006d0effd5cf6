//! A subscriber with a session that lasts: what it was sent while it was away, too.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use bytes::{Buf, Bytes};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user property of what the reader itself publishes. Its value is another one at each read: after a kill, the broker sends marks of
/// earlier reads again.
const MARK: &str = "mark";
/// How many messages without an answer there may be at a broker that does not keep their order.
const WINDOW: u16 = 16;

/// What it read so far.
pub(crate) struct Reader {
    port: u16,
    topic: String,
    client: String,
    keeps_order: bool,
    read: Vec<Published>,
}

/// What was published.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) topic: String,
    pub(crate) user: BTreeMap<String, String>,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Bytes,
    pub(crate) qos: u8,
}

impl Reader {
    /// Of this topic, or of all that this pattern means, from now on.
    pub(crate) fn of(port: u16, topic: &str) -> Self {
        Self::subscribed(Self {
            port,
            topic: topic.into(),
            client: "reader".into(),
            keeps_order: true,
            read: Vec::new(),
        })
    }

    /// The same at Artemis, with a session of this name. Everything comes by QoS 1: with QoS 2, Artemis counts its PUBREL against the
    /// Receive Maximum, and a PUBCOMP does not make it go on.
    pub(crate) fn at_artemis(client: &str, port: u16, topic: &str) -> Self {
        Self::subscribed(Self {
            port,
            topic: topic.into(),
            client: client.into(),
            keeps_order: false,
            read: Vec::new(),
        })
    }

    fn subscribed(reader: Self) -> Self {
        let (mut stream, _) = reader.connect();
        let mut rest = vec![0, 1, 0];
        put(&mut rest, &reader.topic);
        rest.push(if reader.keeps_order { 2 } else { 1 });
        send(&mut stream, 0x82, &rest);
        while packet(&mut stream).0 != 0x90 {}
        put_away(stream);
        reader
    }

    /// Everything that has been published so far, each as often as it came.
    ///
    /// The reader publishes a mark and reads until it comes. At Artemis one mark proves nothing: Artemis assigns messages to a
    /// subscriber in order, but may write them in another (ARTEMIS-6191). There the reader publishes as many marks as the Receive
    /// Maximum allows without an answer, and answers none before all are there: they leave no room for a message that was assigned
    /// before them and has not arrived.
    pub(crate) fn read(&mut self) -> Vec<Published> {
        let (mut stream, mut early) = self.connect();
        let mark = self.publish_marks(&mut stream);
        let mut marks = Vec::new();
        while marks.len() < usize::from(self.marks()) {
            let (first, mut rest) = early.pop_front().unwrap_or_else(|| packet(&mut stream));
            match first >> 4 {
                3 => {
                    let (id, published) = published(first, &mut rest);
                    let answer = (if published.qos == 2 { 0x50 } else { 0x40 }, id.to_be_bytes());
                    match published.user.get(MARK) {
                        Some(value) if *value == mark => {
                            marks.push(answer);
                            continue;
                        }
                        Some(_) => {}
                        None => self.read.push(published),
                    }
                    send(&mut stream, answer.0, &answer.1);
                }
                // PUBREL
                6 => send(&mut stream, 0x70, &rest[..2]),
                _ => {}
            }
        }
        for (first, id) in marks {
            send(&mut stream, first, &id);
        }
        put_away(stream);
        self.read.clone()
    }

    fn marks(&self) -> u16 {
        if self.keeps_order { 1 } else { WINDOW }
    }

    /// Returns their value.
    fn publish_marks(&self, stream: &mut TcpStream) -> String {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let mark = LAST.fetch_add(1, Ordering::SeqCst).to_string();
        // The pattern `orders/#` means `orders`, too.
        let topic = self.topic.trim_end_matches("/#");
        let mut properties = vec![0x26];
        put(&mut properties, MARK);
        put(&mut properties, &mark);
        for id in 1..=self.marks() {
            let mut rest = Vec::new();
            put(&mut rest, topic);
            rest.extend(id.to_be_bytes());
            rest.push(properties.len() as u8);
            rest.extend(&properties);
            send(stream, 0x32, &rest);
        }
        mark
    }

    /// A connection, and what the broker sent before it said so: Artemis may begin with the messages of the session.
    fn connect(&self) -> (TcpStream, VecDeque<(u8, Bytes)>) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        put(&mut rest, "MQTT");
        // No clean start, a session that lasts for good, and the Receive Maximum.
        rest.extend([5, 0xc0, 0, 0, 8, 0x11, 0xff, 0xff, 0xff, 0xff, 0x21]);
        let receive_maximum = if self.keeps_order { u16::MAX } else { WINDOW };
        rest.extend(receive_maximum.to_be_bytes());
        for text in [self.client.as_str(), "duly", "p@ss"] {
            put(&mut rest, text);
        }
        send(&mut stream, 0x10, &rest);
        let mut early = VecDeque::new();
        loop {
            let (first, rest) = packet(&mut stream);
            if first == 0x20 {
                assert_eq!(rest[1], 0, "the reader is let in");
                return (stream, early);
            }
            early.push_back((first, rest));
        }
    }
}

/// DISCONNECT, and waits until the broker has read all.
fn put_away(mut stream: TcpStream) {
    send(&mut stream, 0xe0, &[]);
    let _ = stream.read_to_end(&mut Vec::new());
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text.as_bytes());
}

fn send(stream: &mut TcpStream, first: u8, rest: &[u8]) {
    assert!(rest.len() < 128, "short packets only");
    let packet = [&[first, rest.len() as u8], rest].concat();
    stream.write_all(&packet).unwrap();
}

fn packet(stream: &mut TcpStream) -> (u8, Bytes) {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    let first = byte[0];
    let (mut length, mut shift) = (0, 0);
    loop {
        stream.read_exact(&mut byte).unwrap();
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).unwrap();
    (first, rest.into())
}

fn text(rest: &mut Bytes) -> String {
    let length = usize::from(rest.get_u16());
    String::from_utf8(rest.split_to(length).to_vec()).unwrap()
}

fn published(first: u8, rest: &mut Bytes) -> (u16, Published) {
    let topic = text(rest);
    let qos = first >> 1 & 3;
    assert!(qos > 0, "nobody asked for QoS 0");
    let id = rest.get_u16();
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = rest.get_u8();
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let mut properties = rest.split_to(length);
    let (mut user, mut content_type) = (BTreeMap::new(), None);
    while properties.has_remaining() {
        match properties.get_u8() {
            0x01 => properties.advance(1),
            0x03 => content_type = Some(text(&mut properties)),
            0x26 => {
                let name = text(&mut properties);
                user.insert(name, text(&mut properties));
            }
            other => panic!("property {other:x}"),
        }
    }
    (id, Published { topic, user, content_type, body: rest.clone(), qos })
}
