//! A peer that speaks STOMP and answers as a test wants it: for what no broker can be brought to say.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
};

/// Starts one on a port of its own. `answer` gets each SEND frame as text and the number of its receipt; `None` closes the
/// connection.
pub(crate) fn start(answer: impl Fn(&str, &str) -> Option<String> + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || serve(stream, &answer));
        }
    });
    port
}

fn serve(stream: TcpStream, answer: &impl Fn(&str, &str) -> Option<String>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut frame = Vec::new();
        reader.read_until(0, &mut frame).ok().filter(|count| *count > 0)?;
        let frame = String::from_utf8(frame).unwrap();
        let frame = frame.trim_start();
        let reply = if frame.starts_with("CONNECT") {
            Some("CONNECTED\nversion:1.2\nsession:s\n\n\0".to_owned())
        } else if frame.starts_with("SEND") {
            let receipt = frame.lines().find_map(|line| line.strip_prefix("receipt:")).unwrap();
            answer(frame, receipt)
        } else {
            continue;
        };
        reader.get_mut().write_all(reply?.as_bytes()).ok()?;
    }
}
