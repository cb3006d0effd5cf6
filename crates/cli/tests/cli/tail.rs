//! `duly tail` and `duly receive --follow`.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use duly_client::wire::{Event, ReceivedMessage};
use rustix::process::{Pid, Signal, kill_process};

use super::{Server, duly, run};

#[test]
fn events_come_as_they_happen() {
    let server = Server::start();
    let mut tail = server
        .command()
        .args(["tail", "--types", "accepted,cancelled", "-n", "2", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says so once the server listens to it.
    let mut following = String::new();
    BufReader::new(tail.stderr.take().unwrap()).read_line(&mut following).unwrap();
    server.ok(&["send", "order", "x", "--id", "a", "--in", "1h"]);
    server.ok(&["cancel", "a"]);
    let ended = tail.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let text = String::from_utf8(ended.stdout).unwrap();
    let events: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        matches!(&events[..], [Event::Accepted { id, .. }, Event::Cancelled { .. }] if id == "a"),
        "{events:?}"
    );
}

#[test]
fn following_a_queue_ends_with_an_interrupt() {
    let server = Server::start();
    let mut child = server
        .command()
        .args(["receive", "order", "--follow", "--ack", "-o", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for id in ["a", "b"] {
        server.ok(&["send", "order", "x", "--id", id]);
        let message: ReceivedMessage = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(message.id, id);
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_help_lists_every_type_of_events() {
    let help = run(duly().args(["tail", "--help"]), b"").out;
    // Long lists are wrapped.
    let words: Vec<_> = help.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    for kind in Event::KINDS {
        assert!(words.contains(&kind), "{kind}: {help}");
    }
}
