//! A peer that speaks MQTT 5 and answers as a test wants it: for what no broker can be brought to say.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
};

/// What a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientPacket {
    /// CONNECT: its flags and client id.
    Connect { flags: u8, client_id: String },
    /// PUBLISH: its topic and number.
    Publish { topic: String, id: u16 },
    /// PINGREQ.
    Ping,
    /// Whatever else.
    Other(u8),
}

/// A CONNACK that lets in, with these properties.
pub(crate) fn welcome(properties: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x20, 3 + properties.len() as u8, 0, 0, properties.len() as u8];
    packet.extend(properties);
    packet
}

/// PUBACK with this reason.
pub(crate) fn taken(id: u16, reason: u8) -> Vec<u8> {
    [&[0x40, 4][..], &id.to_be_bytes(), &[reason, 0]].concat()
}

/// Starts one on a port of its own. `answer` gets what a client sends; `None` closes the connection. All of it can be received, too.
pub(crate) fn start(
    answer: impl Fn(&ClientPacket) -> Option<Vec<u8>> + Clone + Send + 'static,
) -> (u16, Receiver<ClientPacket>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (packet, all) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, packet) = (answer.clone(), packet.clone());
            std::thread::spawn(move || serve(stream, &answer, &packet));
        }
    });
    (port, all)
}

fn serve(
    mut stream: TcpStream,
    answer: &impl Fn(&ClientPacket) -> Option<Vec<u8>>,
    all: &Sender<ClientPacket>,
) -> Option<()> {
    loop {
        let packet = next(&mut stream)?;
        let _ = all.send(packet.clone());
        stream.write_all(&answer(&packet)?).ok()?;
    }
}

fn next(stream: &mut TcpStream) -> Option<ClientPacket> {
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    let first = byte[0];
    let (mut length, mut shift) = (0, 0);
    loop {
        stream.read_exact(&mut byte).ok()?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).ok()?;
    let text = |at: usize| {
        let length = usize::from(u16::from_be_bytes([rest[at], rest[at + 1]]));
        (String::from_utf8(rest[at + 2..at + 2 + length].to_vec()).unwrap(), at + 2 + length)
    };
    Some(match first >> 4 {
        1 => ClientPacket::Connect { flags: rest[7], client_id: text(11).0 },
        3 => {
            let (topic, end) = text(0);
            ClientPacket::Publish { topic, id: u16::from_be_bytes([rest[end], rest[end + 1]]) }
        }
        12 => ClientPacket::Ping,
        other => ClientPacket::Other(other),
    })
}
