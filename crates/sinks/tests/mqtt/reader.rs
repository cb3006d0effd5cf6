//! A subscriber with a session that lasts: what it was sent while it was away, too.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use bytes::{Buf, Bytes};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Published by the reader itself: what was acknowledged before this is there before it.
const MARK: &str = "mark";

/// What it read so far.
pub(crate) struct Reader {
    port: u16,
    topic: String,
    client: String,
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
        Self::named("reader", port, topic)
    }

    /// The same with a session of this name.
    pub(crate) fn named(client: &str, port: u16, topic: &str) -> Self {
        let reader = Self { port, topic: topic.into(), client: client.into(), read: Vec::new() };
        let (mut stream, _) = reader.connect();
        let mut rest = vec![0, 1, 0];
        put(&mut rest, &reader.topic);
        rest.push(2);
        send(&mut stream, 0x82, &rest);
        while packet(&mut stream).0 != 0x90 {}
        put_away(stream);
        reader
    }

    /// Everything that has been published so far, each as often as it came.
    pub(crate) fn read(&mut self) -> Vec<Published> {
        let (mut stream, mut early) = self.connect();
        // The pattern `orders/#` means `orders`, too.
        let topic = self.topic.trim_end_matches("/#");
        let (mut rest, mut properties) = (Vec::new(), vec![0x26]);
        put(&mut properties, MARK);
        put(&mut properties, "");
        put(&mut rest, topic);
        rest.extend([0, 1, properties.len() as u8]);
        rest.extend(properties);
        send(&mut stream, 0x32, &rest);
        loop {
            let (first, mut rest) = early.pop_front().unwrap_or_else(|| packet(&mut stream));
            match first >> 4 {
                3 => {
                    let (id, published) = published(first, &mut rest);
                    let answer = if published.qos == 2 { 0x50 } else { 0x40 };
                    send(&mut stream, answer, &id.to_be_bytes());
                    if published.user.contains_key(MARK) {
                        break;
                    }
                    self.read.push(published);
                }
                // PUBREL
                6 => send(&mut stream, 0x70, &rest[..2]),
                _ => {}
            }
        }
        put_away(stream);
        self.read.clone()
    }

    /// A connection, and what the broker sent before it said so: Artemis may begin with the messages of the session.
    fn connect(&self) -> (TcpStream, VecDeque<(u8, Bytes)>) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        put(&mut rest, "MQTT");
        // No clean start, and a session that lasts for good.
        rest.extend([5, 0xc0, 0, 0, 5, 0x11, 0xff, 0xff, 0xff, 0xff]);
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
