use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use super::*;

#[test]
fn answers_pass_or_wait_or_get_lost_and_connections_are_cut() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(server.local_addr().unwrap().port());
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    let (mut served, _) = server.accept().unwrap();
    let mut byte = [0];
    client.write_all(b"a").unwrap();
    served.read_exact(&mut byte).unwrap();
    served.write_all(b"1").unwrap();
    client.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"1");

    proxy.hold();
    client.write_all(b"h").unwrap();
    served.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert!(served.read_exact(&mut byte).is_err(), "it waits on the wire");
    proxy.release();
    served.set_read_timeout(None).unwrap();
    served.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"h", "and arrives late");

    proxy.swallow_answers();
    client.write_all(b"b").unwrap();
    served.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"b", "the server hears it");
    served.write_all(b"2").unwrap();
    proxy.cut();
    assert_eq!(client.read(&mut byte).unwrap_or(0), 0, "the answer is lost, and the connection closed");
}

#[test]
fn at_a_needle_the_wire_breaks_when_it_is_told_to() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::to(server.local_addr().unwrap().port());
    let pair = || {
        let client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        (client, server.accept().unwrap().0)
    };
    let is_closed = |stream: &mut TcpStream| stream.read(&mut [0]).unwrap_or(0) == 0;
    let hears = |stream: &mut TcpStream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        all
    };

    proxy.cut_before(b"needle", 1);
    let (mut client, mut served) = pair();
    client.write_all(b"a needle").unwrap();
    assert!(is_closed(&mut client));
    assert_eq!(hears(&mut served), b"");

    proxy.cut_on(b"needle", 1);
    let (mut client, mut served) = pair();
    client.write_all(b"a needle").unwrap();
    assert!(is_closed(&mut client), "and nobody has answered");
    let mut received = [0; 8];
    served.read_exact(&mut received).unwrap();
    assert_eq!(received, *b"a needle");
    served.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert!(served.read(&mut received).is_err(), "and it does not know that the client is gone");

    proxy.cut_after(b"needle", 1);
    let (mut client, mut served) = pair();
    client.write_all(b"a needle").unwrap();
    served.read_exact(&mut [0; 8]).unwrap();
    client.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert!(client.read(&mut [0]).is_err(), "it is not closed before the answer");
    assert_eq!(proxy.needles_met(), 2, "nor is it counted");
    served.write_all(b"done").unwrap();
    client.set_read_timeout(None).unwrap();
    assert!(is_closed(&mut client));
    assert_eq!(proxy.needles_met(), 3);

    let (mut client, mut served) = pair();
    client.write_all(b"a needle").unwrap();
    served.read_exact(&mut [0; 8]).unwrap();
    served.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();

    proxy.cut_before(b"needle", 1);
    proxy.then_hold();
    client.write_all(b"a needle").unwrap();
    assert!(is_closed(&mut client));
    let (mut client, mut served) = pair();
    client.write_all(b"late").unwrap();
    served.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert!(served.read(&mut [0]).is_err(), "nothing passes");
    proxy.release();
    served.set_read_timeout(None).unwrap();
    served.read_exact(&mut [0; 4]).unwrap();
}
