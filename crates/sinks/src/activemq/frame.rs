//! STOMP 1.2: a frame is a command, headers, an empty line, a body and a NUL.

use std::{borrow::Cow, fmt::Write as _, io};

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A longer answer is no answer.
const ANSWER_MAX: usize = 1024 * 1024;
/// Said when a connection is given up that was only waiting.
pub(super) const FAREWELL: &[u8] = b"DISCONNECT\n\n\0";

/// A frame of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) command: String,
    headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Frame {
    /// Of a header that is there twice the first one counts.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// A frame that is being written.
pub(super) struct Writer<'a> {
    out: &'a mut BytesMut,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut BytesMut, command: &str) -> Self {
        out.put_slice(command.as_bytes());
        out.put_u8(b'\n');
        Self { out }
    }

    pub(super) fn header(self, name: &str, value: impl std::fmt::Display) -> Self {
        // Writing into memory does not fail.
        let _ = writeln!(self.out, "{}:{}", escaped(name), escaped(&value.to_string()));
        self
    }

    /// As it is: in CONNECT nothing is escaped.
    pub(super) fn plain(self, name: &str, value: &str) -> Self {
        let _ = writeln!(self.out, "{name}:{value}");
        self
    }

    pub(super) fn end(self, body: &[u8]) {
        self.out.reserve(body.len() + 2);
        self.out.put_u8(b'\n');
        self.out.put_slice(body);
        self.out.put_u8(0);
    }
}

/// Escapes `text` for a header.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '\n', '\r', ':']) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            ':' => out.push_str("\\c"),
            other => out.push(other),
        }
    }
    out.into()
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('c') => out.push(':'),
                other => out.extend(other),
            },
            (letter, false) => out.push(letter),
        }
    }
    out
}

/// Takes the next frame from the front of `read`, if all of it is there.
pub(super) fn next(read: &mut BytesMut) -> io::Result<Option<Frame>> {
    // Between frames line ends are heart-beats.
    while read.first().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        read.advance(1);
    }
    let Some((frame, length)) = parse(read)? else {
        return if read.len() > ANSWER_MAX { Err(strange()) } else { Ok(None) };
    };
    read.advance(length);
    Ok(Some(frame))
}

/// The frame at the front, and how long it is.
fn parse(read: &[u8]) -> io::Result<Option<(Frame, usize)>> {
    let mut at = 0;
    let mut line = || {
        let end = read[at..].iter().position(|byte| *byte == b'\n')?;
        let line = &read[at..at + end];
        at += end + 1;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    };
    let text = |line: &[u8]| String::from_utf8(line.to_vec()).map_err(|_| strange());
    if read.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
        return Err(strange());
    }
    let Some(command) = line() else { return Ok(None) };
    let command = text(command)?;
    let mut headers = Vec::new();
    loop {
        let Some(header) = line() else { return Ok(None) };
        if header.is_empty() {
            break;
        }
        let header = text(header)?;
        let (name, value) = header.split_once(':').ok_or_else(strange)?;
        headers.push((unescaped(name), unescaped(value)));
    }
    let mut frame = Frame { command, headers, body: Bytes::new() };
    let length = match frame.header("content-length") {
        Some(length) => Some(length.parse().map_err(|_| strange())?),
        None => read[at..].iter().position(|byte| *byte == 0),
    };
    let Some(length) = length.filter(|length| *length < ANSWER_MAX) else {
        return if length.is_some() { Err(strange()) } else { Ok(None) };
    };
    match read.get(at + length) {
        None => Ok(None),
        Some(0) => {
            frame.body = Bytes::copy_from_slice(&read[at..at + length]);
            Ok(Some((frame, at + length + 1)))
        }
        Some(_) => Err(strange()),
    }
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is no STOMP: an answer that cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_when_all_of_it_is_there() {
        let whole = b"\n\r\nERROR\r\nmessage:a\\cb\\nc\\\\d\ncontent-length:3\nmessage:later\n\nx\0y\0RECEIPT\nreceipt-id:7\n\n\0\n";
        let end = whole.len() - 1;
        for cut in 0..end {
            let mut read = BytesMut::from(&whole[..cut]);
            let mut frames = 0;
            while next(&mut read).unwrap().is_some() {
                frames += 1;
            }
            assert!(frames < 2, "{cut}");
        }
        let mut read = BytesMut::from(&whole[..]);
        let frame = next(&mut read).unwrap().unwrap();
        assert_eq!((frame.command.as_str(), &frame.body[..]), ("ERROR", &b"x\0y"[..]));
        assert_eq!(frame.header("message"), Some("a:b\nc\\d"));
        let frame = next(&mut read).unwrap().unwrap();
        assert_eq!((frame.command.as_str(), frame.header("receipt-id")), ("RECEIPT", Some("7")));
        assert!(next(&mut read).unwrap().is_none() && read.is_empty());
    }

    #[test]
    fn what_is_no_frame_is_a_fault_and_not_waited_for() {
        for bytes in
            [&b"\x15\x03\x01"[..], b"HTTP/1.1 400 Bad\nno header\n\n", b"RECEIPT\ncontent-length:x\n\n\0"]
        {
            assert!(next(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn headers_are_escaped_and_come_back() {
        let nasty = "a:b\\c\nd\re \\n";
        assert!(!escaped(nasty).contains(['\n', '\r', ':']));
        assert_eq!(unescaped(&escaped(nasty)), nasty);
    }
}
