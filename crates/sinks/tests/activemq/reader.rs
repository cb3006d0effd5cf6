//! A little STOMP for the far end: what is in a queue, without taking it out.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    mem,
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use bytes::Bytes;
use duly_core::Timestamp;
use testkit::sink::Arrival;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Reader {
    stream: BufReader<TcpStream>,
}

/// A MESSAGE, or whatever else a broker says.
pub(crate) struct Frame {
    pub(crate) command: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Bytes,
}

impl Reader {
    pub(crate) fn to(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reader = Self { stream: BufReader::new(stream) };
        reader.send("CONNECT\naccept-version:1.2\nhost:x\nlogin:duly\npasscode:p@ss\n\n\0");
        assert_eq!(reader.next().command, "CONNECTED");
        reader
    }

    pub(crate) fn send(&mut self, frame: &str) {
        self.stream.get_mut().write_all(frame.as_bytes()).unwrap();
    }

    pub(crate) fn next(&mut self) -> Frame {
        let mut command = String::new();
        while command.is_empty() {
            command = self.line();
        }
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.entry(unescaped(name)).or_insert_with(|| unescaped(value));
        }
        let mut body = Vec::new();
        match headers.get("content-length") {
            Some(length) => {
                body.resize(length.parse::<usize>().unwrap() + 1, 0);
                self.stream.read_exact(&mut body).unwrap();
            }
            None => {
                self.stream.read_until(0, &mut body).unwrap();
            }
        }
        assert_eq!(body.pop(), Some(0), "a frame ends with a NUL");
        Frame { command, headers, body: body.into() }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stream.read_line(&mut line).unwrap() > 0, "the broker closed the connection");
        line.trim_end_matches(['\r', '\n']).to_owned()
    }
}

fn unescaped(text: &str) -> String {
    let nul = text.replace("\\\\", "\0");
    nul.replace("\\n", "\n").replace("\\r", "\r").replace("\\c", ":").replace('\0', "\\")
}

impl Frame {
    pub(crate) fn arrival(self) -> Arrival {
        let get = |name: &str| self.headers.get(name).cloned();
        let text = |name: &str| get(name).unwrap();
        let destination = text("destination");
        let prefixed = destination.strip_prefix("/queue/").or_else(|| destination.strip_prefix("/topic/"));
        // Artemis has none.
        let topic = prefixed.unwrap_or(&destination);
        Arrival {
            id: text("duly-id").parse().unwrap(),
            due: Timestamp::from_millis(text("duly-due").parse().unwrap()),
            attempt: text("duly-attempt").parse().unwrap(),
            topic: topic.to_owned(),
            tag: get("duly-tag"),
            key: get("duly-key"),
            content_type: text("content-type"),
            body: self.body.clone(),
            properties: self.headers,
        }
    }
}

/// All messages of a queue, which stay there.
pub(crate) fn read(port: u16, queue: &str) -> Vec<Arrival> {
    let mut reader = Reader::to(port);
    reader.send(&format!("SUBSCRIBE\nid:0\nbrowser:true\nack:auto\ndestination:/queue/{queue}\n\n\0"));
    let mut arrivals = Vec::new();
    loop {
        let frame = reader.next();
        assert_eq!(frame.command, "MESSAGE", "{:?}", frame.headers);
        assert!(frame.headers.get("persistent").is_none_or(|value| value == "true"));
        if frame.headers.get("browser").is_some_and(|value| value == "end") {
            return arrivals;
        }
        arrivals.push(frame.arrival());
    }
}

/// All messages of a queue of Artemis, which are taken out: it lets nobody browse by STOMP.
pub(crate) fn drain(port: u16, queue: &str) -> Vec<Arrival> {
    const MARK: &str = "mark";
    let mut reader = Reader::to(port);
    // What was acknowledged before this is there before it.
    reader.send(&format!("SEND\ndestination:{queue}\ndestination-type:ANYCAST\n{MARK}:1\nreceipt:m\n\n\0"));
    assert_eq!(reader.next().command, "RECEIPT");
    reader.send(&format!("SUBSCRIBE\nid:0\nack:auto\ndestination:{queue}\nsubscription-type:ANYCAST\n\n\0"));
    let (mut arrivals, mut is_over) = (Vec::new(), false);
    loop {
        let frame = reader.next();
        if frame.command == "RECEIPT" {
            return arrivals;
        }
        assert_eq!(frame.command, "MESSAGE", "{:?}", frame.headers);
        if frame.headers.contains_key(MARK) {
            // A subscription that is only left behind may be given the mark of the next reader.
            if !mem::replace(&mut is_over, true) {
                reader.send("UNSUBSCRIBE\nid:0\nreceipt:u\n\n\0");
            }
            continue;
        }
        assert_eq!(frame.headers["persistent"], "true");
        arrivals.push(frame.arrival());
    }
}
