//! MQTT: a packet is a first byte, a length and the rest. Only those that a publisher needs.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{config::MqttVersion, failure::strange};

/// A longer answer is no answer.
const ANSWER_MAX: usize = 1024 * 1024;
/// The longest packet that can be.
pub(super) const PACKET_MAX: usize = 268_435_455;
/// Said when a connection is given up that was only waiting: DISCONNECT.
pub(super) const FAREWELL: &[u8] = &[0xe0, 0];
pub(super) const PING: &[u8] = &[0xc0, 0];

/// Numbers of properties.
const SERVER_KEEP_ALIVE: u8 = 0x13;
const RECEIVE_MAXIMUM: u8 = 0x21;
const MAXIMUM_QOS: u8 = 0x24;
const MAXIMUM_PACKET: u8 = 0x27;
const REASON: u8 = 0x1f;

/// A packet of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Packet {
    Welcome(Welcome),
    /// PUBACK, PUBREC or PUBCOMP: what step it is, of which packet, and the reason.
    Answer(Step, u16, Reason),
    Pong,
    /// It is going to close the connection.
    Goodbye(Reason),
    /// Nothing that concerns us.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// PUBACK.
    Acknowledged,
    /// PUBREC.
    Received,
    /// PUBCOMP.
    Complete,
}

/// A reason code, and the broker's words if it has any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Reason {
    pub(super) code: u8,
    pub(super) words: String,
}

/// CONNACK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) reason: Reason,
    /// The receive maximum: messages that may wait for their acknowledgements.
    pub(super) receive_max: u16,
    pub(super) qos_max: u8,
    pub(super) packet_max: usize,
    /// The seconds after which it closes a connection that is silent, if it wants others than we do.
    pub(super) keep_alive: Option<u16>,
}

/// CONNECT.
pub(super) struct Login<'a> {
    pub(super) version: MqttVersion,
    pub(super) keep_alive: u16,
    /// If it is empty, the broker chooses one.
    pub(super) client_id: &'a str,
    pub(super) clean_start: bool,
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a str>,
}

/// Adds a text with its length before it.
pub(super) fn text(out: &mut BytesMut, text: &str) {
    // The caller has checked the length.
    out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    out.put_slice(text.as_bytes());
}

/// Adds a length of one to four bytes.
pub(super) fn length(out: &mut BytesMut, mut length: usize) {
    loop {
        let (byte, rest) = ((length % 128) as u8, length / 128);
        out.put_u8(if rest > 0 { byte | 0x80 } else { byte });
        if rest == 0 {
            return;
        }
        length = rest;
    }
}

/// How many bytes a length has.
pub(super) fn length_of(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        _ => 4,
    }
}

pub(super) fn connect(login: &Login<'_>) -> BytesMut {
    let mut rest = BytesMut::new();
    text(&mut rest, "MQTT");
    rest.put_u8(if login.version == MqttVersion::V5 { 5 } else { 4 });
    let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    // Before version 5 there is no password without a user.
    let user = login.user.or(login.password.and(Some("")));
    let flags = [(login.clean_start, 0x02), (user.is_some(), 0x80), (login.password.is_some(), 0x40)];
    rest.put_u8(flags.into_iter().map(|(is_there, bit)| flag(is_there, bit)).sum());
    rest.put_u16(login.keep_alive);
    if login.version == MqttVersion::V5 {
        rest.put_u8(0);
    }
    text(&mut rest, login.client_id);
    for given in [user, login.password].into_iter().flatten() {
        text(&mut rest, given);
    }
    let mut packet = BytesMut::new();
    packet.put_u8(0x10);
    length(&mut packet, rest.len());
    packet.put_slice(&rest);
    packet
}

/// PUBREL: the second half of QoS 2.
pub(super) fn release(out: &mut BytesMut, id: u16) {
    out.put_slice(&[0x62, 2]);
    out.put_u16(id);
}

/// Takes the next packet from the front of `read`, if all of it is there.
pub(super) fn next(read: &mut BytesMut, version: MqttVersion) -> io::Result<Option<Packet>> {
    let Some((first, begin, length)) = header(read)? else { return Ok(None) };
    if length > ANSWER_MAX {
        return Err(strange());
    }
    if read.len() < begin + length {
        return Ok(None);
    }
    read.advance(begin);
    let mut rest = read.split_to(length).freeze();
    let is_five = version == MqttVersion::V5;
    Ok(Some(match first {
        0x20 => Packet::Welcome(welcome(&mut rest, is_five).ok_or_else(strange)?),
        0x40 | 0x50 | 0x70 => {
            let step = match first {
                0x40 => Step::Acknowledged,
                0x50 => Step::Received,
                _ => Step::Complete,
            };
            let id = rest.try_get_u16().map_err(|_| strange())?;
            Packet::Answer(step, id, reason(&mut rest).ok_or_else(strange)?)
        }
        0xd0 => Packet::Pong,
        0xe0 => Packet::Goodbye(reason(&mut rest).ok_or_else(strange)?),
        _ if first >> 4 == 0 || first >> 4 == 1 => return Err(strange()),
        _ => Packet::Other,
    }))
}

/// The first byte, how long the header is, and the rest.
fn header(read: &[u8]) -> io::Result<Option<(u8, usize, usize)>> {
    let Some((first, lengths)) = read.split_first() else { return Ok(None) };
    let mut length = 0;
    for (position, byte) in lengths.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return Ok(Some((*first, position + 2, length)));
        }
    }
    if lengths.len() >= 4 { Err(strange()) } else { Ok(None) }
}

fn welcome(rest: &mut Bytes, is_five: bool) -> Option<Welcome> {
    let mut welcome = Welcome {
        reason: Reason::default(),
        receive_max: u16::MAX,
        qos_max: 2,
        packet_max: PACKET_MAX,
        keep_alive: None,
    };
    rest.try_get_u8().ok()?;
    welcome.reason.code = rest.try_get_u8().ok()?;
    // A broker that knows only older versions answers as those did.
    if is_five && rest.has_remaining() {
        let seen = properties(rest, |number, value| match number {
            SERVER_KEEP_ALIVE => welcome.keep_alive = Some(number_of(value) as u16),
            RECEIVE_MAXIMUM => welcome.receive_max = number_of(value).max(1) as u16,
            MAXIMUM_QOS => welcome.qos_max = number_of(value) as u8,
            MAXIMUM_PACKET => welcome.packet_max = number_of(value),
            REASON => welcome.reason.words = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        });
        seen?;
    }
    Some(welcome)
}

fn reason(rest: &mut Bytes) -> Option<Reason> {
    let mut reason = Reason::default();
    if rest.has_remaining() {
        reason.code = rest.get_u8();
    }
    if rest.has_remaining() {
        properties(rest, |number, value| {
            if number == REASON {
                reason.words = String::from_utf8_lossy(value).into_owned();
            }
        })?;
    }
    Some(reason)
}

fn number_of(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Shows each property with its number and the bytes of its value.
fn properties(rest: &mut Bytes, mut each: impl FnMut(u8, &[u8])) -> Option<()> {
    let total = variable(rest)?;
    let mut all = (rest.len() >= total).then(|| rest.split_to(total))?;
    while all.has_remaining() {
        let number = all.get_u8();
        let length = match number {
            0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => 1,
            0x13 | 0x21 | 0x22 | 0x23 => 2,
            0x02 | 0x11 | 0x18 | 0x27 => 4,
            0x0b => {
                variable(&mut all)?;
                continue;
            }
            // A name, and a value like the others.
            0x26 => {
                let name = usize::from(all.try_get_u16().ok()?);
                (all.len() >= name).then(|| all.advance(name))?;
                usize::from(all.try_get_u16().ok()?)
            }
            _ => usize::from(all.try_get_u16().ok()?),
        };
        let value = (all.len() >= length).then(|| all.split_to(length))?;
        each(number, &value);
    }
    Some(())
}

fn variable(rest: &mut Bytes) -> Option<usize> {
    let mut number = 0;
    for position in 0..4 {
        let byte = rest.try_get_u8().ok()?;
        number |= usize::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Packet {
        for cut in 0..bytes.len() {
            assert_eq!(next(&mut BytesMut::from(&bytes[..cut]), MqttVersion::V5).unwrap(), None, "{cut}");
        }
        next(&mut BytesMut::from(bytes), MqttVersion::V5).unwrap().unwrap()
    }

    #[test]
    fn packets_are_read_when_all_of_them_is_there() {
        let limits = [
            0x13, 0, 7, 0x21, 0, 9, 0x24, 1, 0x27, 0, 0, 1, 0, 0x26, 0, 1, b'a', 0, 1, b'b', 0x12, 0, 1, b'x',
        ];
        let mut welcome = vec![0x20, 3 + limits.len() as u8, 0, 0, limits.len() as u8];
        welcome.extend(limits);
        let wanted = Welcome {
            reason: Reason::default(),
            receive_max: 9,
            qos_max: 1,
            packet_max: 256,
            keep_alive: Some(7),
        };
        assert_eq!(read(&welcome), Packet::Welcome(wanted));
        assert_eq!(read(&[0x40, 2, 1, 2]), Packet::Answer(Step::Acknowledged, 258, Reason::default()));
        let why = Reason { code: 0x97, words: "no".into() };
        let bytes = [0x50, 9, 0, 7, 0x97, 5, 0x1f, 0, 2, b'n', b'o'];
        assert_eq!(read(&bytes), Packet::Answer(Step::Received, 7, why));
        assert_eq!(read(&[0xe0, 2, 0x8b, 0]), Packet::Goodbye(Reason { code: 0x8b, words: String::new() }));
        assert_eq!(read(&[0xd0, 0]), Packet::Pong);
    }

    #[test]
    fn what_is_no_packet_is_a_fault_and_not_waited_for() {
        let all: [&[u8]; 4] =
            [b"\x15\x03\x03\x00\x02", b"\x20\xff\xff\xff\xff", &[0x40, 1, 0], &[0x20, 3, 0, 0, 9]];
        for bytes in all {
            assert!(next(&mut BytesMut::from(bytes), MqttVersion::V5).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn lengths_have_one_to_four_bytes() {
        for number in [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, PACKET_MAX] {
            let mut out = BytesMut::new();
            length(&mut out, number);
            assert_eq!(out.len(), length_of(number));
            assert_eq!(variable(&mut out.freeze()), Some(number));
        }
    }
}
