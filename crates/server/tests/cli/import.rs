//! `duly import`.

use std::fs;

use duly_server::wire::Stats;
use serde_json::{Value, json};

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
    assert_eq!(server.json::<Stats>(&["stats"]).books.pending, 2_500);
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
fn a_dry_run_checks_and_sends_nothing() {
    let server = Server::start();
    let run = server
        .run_with(&["import", "-", "--dry-run"], b"{\"topic\":\"t\",\"id\":\"a\"}\n{\"topik\":\"t\"}\n");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.words.contains("line 2: ") && run.words.contains("topik"), "{run:?}");
    assert_eq!(server.json::<Stats>(&["stats"]).books.accepted, 0);
}
