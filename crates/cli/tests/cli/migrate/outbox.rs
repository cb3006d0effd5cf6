//! Rows that applications wrote into the tables of a store by an INSERT of their own.

use serde_json::json;
use testkit::servers::{mysql, postgres};

use super::{moved, on, on_folder};

/// Moves 901 rows from the store at `url`; `write` writes them. One body is larger than a server without settings takes.
fn move_rows_of_others(url: &str, write: impl FnOnce(&str)) {
    drop(on(url));
    write("INSERT INTO delay_message (message_id, topic, deliver_time_ms, body)");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let report = moved(url, data.to_str().unwrap(), &[]);
    assert_eq!((&report["moved"], &report["complete"]), (&json!(901), &json!(true)), "{url}: {report}");
    let target = on_folder(&data);
    assert_eq!((target.totals().pending, target.totals().dead), (901, 0), "{url}");
    assert_eq!(target.record("large").unwrap().message.body.len(), 2_000_000);
}

#[test]
fn rows_that_others_wrote_are_all_moved_before_it_is_complete_and_none_is_buried() {
    if !postgres::installed() || !mysql::installed() {
        return;
    }
    let (server, url) = (postgres::shared(), postgres::shared().fresh_database());
    move_rows_of_others(&url, |insert| {
        let due = "(extract(epoch FROM now()) * 1000)::bigint + 7200000";
        let body = "convert_to('x', 'UTF8')";
        let rows = format!("SELECT 'row-' || n, 'order', {due}, {body} FROM generate_series(1, 900) n");
        let large = format!("VALUES ('large', 'order', {due}, convert_to(repeat('x', 2000000), 'UTF8'))");
        server.run_in(&url, &format!("{insert} {rows}; {insert} {large};"));
    });
    let (server, url) = (mysql::shared(), mysql::shared().fresh_database());
    move_rows_of_others(&url, |insert| {
        let due = "UNIX_TIMESTAMP() * 1000 + 7200000";
        let rows = format!("SELECT CONCAT('row-', seq), 'order', {due}, 'x' FROM seq_1_to_900");
        let large = format!("VALUES ('large', 'order', {due}, REPEAT('x', 2000000))");
        server.run_in(&url, &format!("{insert} {rows}; {insert} {large};"));
    });
}
