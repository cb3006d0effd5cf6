//! `duly import`.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Stdio,
    time::Duration,
};

use duly_client::wire::Stats;
use serde_json::{Value, json};
use testkit::servers::wait_until;

use super::Server;

#[test]
fn an_import_that_is_run_again_happens_once() {
    let server = Server::start();
    let lines: String = (0..2_500)
        .map(|i| {
            format!("{{\"topic\":\"order\",\"json\":{{\"n\":{i}}},\"delay\":\"1h\",\"id\":\"o-{i}\"}}\n")
        })
        .collect();
    let file = server.folder.path().join("orders.ndjson");
    fs::write(&file, lines).unwrap();
    let file = file.to_str().unwrap();
    let first: Value = server.json(&["import", file]);
    assert_eq!(first, json!({"lines":2500,"accepted":2500,"duplicates":0,"refused":0,"dry_run":false}));
    let again: Value = server.json(&["import", file, "--batch", "999"]);
    assert_eq!(again, json!({"lines":2500,"accepted":0,"duplicates":2500,"refused":0,"dry_run":false}));
    assert_eq!(server.json::<Stats>(&["stats"]).totals.pending, 2_500);
}

#[test]
fn lines_without_an_id_get_one_by_their_number() {
    let server = Server::start();
    let lines = b"{\"topic\":\"t\",\"delay\":\"1h\"}\n\n{\"topic\":\"t\",\"delay\":\"1h\"}\n";
    for expected in ["2             2           0", "2             0           2"] {
        let run = server.run_with(&["import", "-", "--ids", "x"], lines);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.out.contains(expected), "{run:?}");
    }
    server.ok(&["get", "x-1", "x-3"]);
    let run = server.run_with(&["import", "-"], lines);
    assert!(run.words.contains("had no id"), "{run:?}");
}

#[test]
fn a_bad_line_is_told_by_its_number_and_the_others_stand() {
    let server = Server::start();
    let lines = b"{\"topic\":\"t\",\"id\":\"a\",\"delay\":\"1h\"}\nnot json\n{\"topic\":\"t\",\"id\":\"b\",\"delay\":\"99999d\"}\n";
    let run = server.run_with(&["import", "-", "-o", "json"], lines);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("line 2:") && run.words.contains("line 3:"), "{run:?}");
    let counts: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&counts["accepted"], &counts["refused"]), (&json!(1), &json!(2)));
    server.ok(&["get", "a"]);
}

#[test]
fn a_line_that_is_longer_than_the_server_reads_is_refused_alone() {
    let server = Server::with(|config| config.limits.body_bytes_max = 1_000);
    let line = |id: usize, body: usize| {
        format!("{{\"topic\":\"t\",\"delay\":\"1h\",\"id\":\"o-{id}\",\"body\":\"{}\"}}\n", "x".repeat(body))
    };
    // The first of a batch, one in the middle, the last, and one that is read and refused for its body alone.
    for batch in ["3", "1000"] {
        let sizes = [1 << 20, 1, 1, 1 << 20, 2_000, 1, 1 << 20];
        let lines: String = sizes.iter().enumerate().map(|(id, body)| line(id, *body)).collect();
        let run = server.run_with(&["import", "-", "--batch", batch, "-o", "json"], lines.as_bytes());
        assert_eq!(run.code, 1, "{run:?}");
        let counts: Value = serde_json::from_str(&run.out).unwrap();
        let taken = counts["accepted"].as_u64().unwrap() + counts["duplicates"].as_u64().unwrap();
        assert_eq!((taken, &counts["refused"]), (3, &json!(4)), "{run:?}");
        for number in [1, 4, 5, 7] {
            assert!(run.words.contains(&format!("line {number}: ")), "{number}: {}", run.words);
        }
    }
}

#[test]
fn an_import_works_whatever_the_server_takes_at_once() {
    let server = Server::with(|config| config.limits.batch_max = 70);
    let lines: String =
        (0..300).map(|i| format!("{{\"topic\":\"t\",\"delay\":\"1h\",\"id\":\"o-{i}\"}}\n")).collect();
    let run = server.run_with(&["import", "-", "-o", "json"], lines.as_bytes());
    let counts: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&counts["accepted"], &counts["refused"]), (&json!(300), &json!(0)), "{run:?}");
    assert_eq!(server.json::<Stats>(&["stats"]).totals.pending, 300);
}

#[test]
fn an_import_waits_for_a_store_that_takes_nothing_now_and_no_line_is_refused_for_it() {
    let server = Server::with(|config| config.limits.pending_max = 3);
    let lines: String =
        (0..5).map(|i| format!("{{\"topic\":\"t\",\"delay\":\"1h\",\"id\":\"o-{i}\"}}\n")).collect();
    let run = server.run_with(&["import", "-", "--batch", "1", "--patience", "0s"], lines.as_bytes());
    assert_eq!(run.code, 5, "it is not the lines: {run:?}");
    assert!(run.words.contains("stopped at line 4") && !run.words.contains("refused"), "{run:?}");
    std::thread::scope(|scope| {
        let import = scope.spawn(|| {
            server.run_with(
                &["import", "-", "--batch", "1", "--patience", "2m", "-o", "json"],
                lines.as_bytes(),
            )
        });
        // What waits goes away: then the others are taken.
        for id in ["o-0", "o-1"] {
            server.ok(&["fire", id]);
            server.ok(&["receive", "t", "--wait", "10s", "--ack"]);
        }
        let run = import.join().unwrap();
        let counts: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(
            (run.code, &counts["accepted"], &counts["duplicates"]),
            (0, &json!(2), &json!(3)),
            "{run:?}"
        );
    });
}

#[test]
fn an_import_without_ids_says_how_it_is_run_again() {
    let server = Server::start();
    let lines = b"{\"topic\":\"t\",\"delay\":\"1h\"}\n{\"topic\":\"t\",\"delay\":\"1h\"}\n";
    let run = server.run_with(&["import", "-"], lines);
    let prefix = run.words.split("use --ids ").nth(1).unwrap().split_whitespace().next().unwrap();
    let run = server.run_with(&["import", "-", "--ids", prefix, "-o", "json"], lines);
    let counts: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&counts["accepted"], &counts["duplicates"]), (&json!(0), &json!(2)), "{run:?}");
}

#[test]
fn a_dry_run_checks_and_sends_nothing() {
    let server = Server::start();
    let run = server
        .run_with(&["import", "-", "--dry-run"], b"{\"topic\":\"t\",\"id\":\"a\"}\n{\"topik\":\"t\"}\n");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("line 2: ") && run.words.contains("topik"), "{run:?}");
    assert_eq!(server.json::<Stats>(&["stats"]).totals.accepted, 0);
}

/// What the server says of a message by itself: the status, and the code if it is refused.
fn sent(server: &Server, message: &str) -> (u16, Option<String>) {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let length = message.len();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{message}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    (status, body["code"].as_str().map(str::to_owned))
}

/// A line that the dry run calls good is taken, and one that it calls bad is refused, with the same code.
#[test]
fn a_dry_run_refuses_what_the_server_refuses() {
    let server = Server::start();
    let lines = [
        r#"{"topic":"t","id":"good","retry":{"attempts":1,"backoff":"fixed","min":"1s"},"properties":{"a":"b"}}"#,
        r#"{"topic":"t","retry":{"attempts":0}}"#,
        r#"{"topic":"t","retry":{"backoff":"none"}}"#,
        r#"{"topic":"t","retry":{"min":"2m","max":"1m"}}"#,
        r#"{"topic":"t","properties":{"duly-id":"x"}}"#,
        r#"{"topic":"t","properties":{"DELAY":"3"}}"#,
        r#"{"topic":".."}"#,
        r#"{"topic":"t","id":".."}"#,
        r#"{"topic":"t","priority":10}"#,
        r#"{"topic":"t","body":"a","json":1}"#,
        r#"{"topic":"t","delay":"9999d"}"#,
        r#"{"topic":"t","deliver_at":1700000000}"#,
    ];
    for line in lines {
        let dry = server.run_with(&["import", "-", "--dry-run"], line.as_bytes());
        let answer = sent(&server, line);
        let is_good = answer.0 == 201;
        assert_eq!(dry.code, i32::from(!is_good), "{line}: {answer:?}, and the dry run: {dry:?}");
        if let Some(code) = answer.1.filter(|code| code != "bad_field") {
            assert!(dry.words.contains(&format!("[{code}]")), "{line}: {code}, and the dry run: {dry:?}");
        }
    }
    let ids = server.run_with(&["import", "-", "--dry-run", "--ids", "a b"], b"{\"topic\":\"t\"}\n");
    assert!(ids.code == 2 && ids.words.contains("--ids"), "{ids:?}");
}

/// Of each id that comes twice in one input, the dry run counts what the import then counts.
#[test]
fn a_dry_run_notices_an_id_that_comes_twice_with_other_content() {
    let server = Server::start();
    let lines = b"{\"topic\":\"t\",\"id\":\"a\",\"body\":\"x\",\"delay\":\"1h\"}\n\
        {\"topic\":\"t\",\"id\":\"a\",\"body\":\"x\",\"delay\":\"2h\"}\n\
        {\"topic\":\"t\",\"id\":\"a\",\"body\":\"y\",\"delay\":\"1h\"}\n\
        {\"topic\":\"t\",\"body\":\"x\",\"delay\":\"1h\"}\n\
        {\"topic\":\"t\",\"id\":\"x-4\",\"delay\":\"1h\"}\n";
    for more in [&["--dry-run"][..], &[]] {
        let run = server.run_with(&[&["import", "-", "--ids", "x", "-o", "json"][..], more].concat(), lines);
        assert_eq!(run.code, 1, "{run:?}");
        for (number, is_refused) in [(1, false), (2, false), (3, true), (4, false), (5, true)] {
            assert_eq!(run.words.contains(&format!("line {number}: ")), is_refused, "{number}: {run:?}");
        }
        assert!(run.words.contains("[id_conflict]"), "{run:?}");
        let counts: Value = serde_json::from_str(&run.out).unwrap();
        let counts =
            ["lines", "accepted", "duplicates", "refused"].map(|name| counts[name].as_u64().unwrap());
        assert_eq!(counts, [5, 2, 1, 2], "{more:?}: {run:?}");
    }
}

#[test]
fn a_byte_order_mark_before_the_first_line_is_passed_over() {
    let server = Server::start();
    let lines = b"\xef\xbb\xbf{\"topic\":\"t\",\"id\":\"a\",\"delay\":\"1h\"}\n{\"topic\":\"t\",\"id\":\"b\",\"delay\":\"1h\"}\n";
    for more in [&["--dry-run"][..], &[]] {
        let run = server.run_with(&[&["import", "-"][..], more].concat(), lines);
        assert_eq!(run.code, 0, "{run:?}");
    }
    server.ok(&["get", "a", "b"]);
    // Elsewhere it is part of the line, which is then no JSON.
    let run = server.run_with(&["import", "-"], b"\n\xef\xbb\xbf{\"topic\":\"t\"}\n");
    assert!(run.code == 1 && run.words.contains("line 2: "), "{run:?}");
}

#[test]
fn an_import_gives_up_a_server_that_takes_connections_and_never_answers() {
    /// Less than a single call was given however little patience there was.
    const WITHIN: Duration = Duration::from_secs(40);
    // The system takes connections for it; nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let args = ["import", "-", "--patience", "1s"];
    let (input, output) = (Stdio::piped(), Stdio::piped());
    let mut child =
        super::duly().env("DULY_URL", url).args(args).stdin(input).stderr(output).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"topic\":\"t\",\"id\":\"a\"}\n").unwrap();
    wait_until("it is given up", WITHIN, || child.try_wait().unwrap().is_some());
    let run = child.wait_with_output().unwrap();
    let words = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(5), "{words}");
    assert!(words.contains("nothing within") && words.contains("stopped at line 1"), "{words}");
}
