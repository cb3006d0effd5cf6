//! The exit codes that scripts rely on.

use std::net::TcpListener;

use super::{Server, duly, run};

#[test]
fn what_cannot_be_meant_is_2_and_needs_no_server() {
    for args in [
        &["send"][..],
        &["send", "t", "b", "--in", "soon"],
        &["send", "t", "b", "--at", "tomorrow"],
        &["send", "t", "b", "--in", "1m", "--at", "2040-01-01T00:00:00Z"],
        &["send", "t", "b", "--priority", "10"],
        &["send", "t", "{", "--json"],
        &["send", "t", "b", "-p", "novalue"],
        &["cancel"],
        &["reschedule", "a"],
        &["pause"],
        &["nonsense"],
        &["ls", "--state", "sleeping"],
        &["--url", "not a url", "ls"],
        &["bench", "--delay", "5s..1s"],
    ] {
        let run = run(duly().args(args), b"");
        assert_eq!(run.code, 2, "{args:?}: {run:?}");
        assert!(!run.words.is_empty() && run.out.is_empty(), "{args:?}: {run:?}");
    }
}

#[test]
fn unknown_is_3_and_too_late_is_4() {
    let server = Server::start();
    server.ok(&["send", "order", "x", "--id", "a", "--in", "1h"]);
    server.ok(&["cancel", "a"]);
    // Whoever got no answer asks again.
    assert_eq!(server.ok(&["cancel", "a"]), "a cancelled before\n");
    for (args, code) in [
        (&["get", "nobody"][..], 3),
        (&["cancel", "nobody"], 3),
        (&["fire", "nobody"], 3),
        (&["reschedule", "nobody", "--in", "1h"], 3),
        (&["sinks", "probe", "nobody"], 3),
        (&["pause", "--sink", "nobody"], 3),
        (&["fire", "a"], 4),
        (&["reschedule", "a", "--in", "1h"], 4),
    ] {
        let run = server.run(args);
        assert_eq!(run.code, code, "{args:?}: {run:?}");
        assert!(run.words.starts_with("error: ") && run.out.is_empty(), "{args:?}: {run:?}");
    }
}

#[test]
fn an_id_with_other_content_is_4() {
    let server = Server::start();
    server.ok(&["send", "order", "one", "--id", "a", "--in", "1h"]);
    let run = server.run(&["send", "order", "two", "--id", "a", "--in", "1h"]);
    assert_eq!(run.code, 4);
    assert!(run.words.contains("[id_conflict]"), "{run:?}");
}

#[test]
fn a_refusal_is_1_and_says_why() {
    let server = Server::start();
    for (args, code) in [
        (["send", "t", "b", "--level", "nope"], "[unknown_level]"),
        (["send", "t", "b", "--sink", "nope"], "[unknown_sink]"),
    ] {
        let run = server.run(&args);
        assert_eq!(run.code, 1);
        assert!(run.words.contains(code), "{run:?}");
    }
}

#[test]
fn no_server_is_5() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for args in
        [&["ls"][..], &["send", "t", "b"], &["tail"], &["bench", "-d", "1s"], &["receive", "t", "--follow"]]
    {
        let run = run(duly().args(args).args(["--url", &url]), b"");
        assert_eq!(run.code, 5, "{args:?}: {run:?}");
        assert!(run.words.contains(&url), "{args:?}: {run:?}");
    }
}
