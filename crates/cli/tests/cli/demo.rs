//! `duly demo`: the first thing a newcomer sees.

use serde_json::{Value, json};

use super::{duly, run};

#[test]
fn the_demo_ends_well_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(duly().env("TMPDIR", folder.path()).args(["demo", "-o", "json"]), b"");
    assert_eq!(run.code, 0, "{run:?}");
    let summary: Value = serde_json::from_str(&run.out).unwrap();
    for (what, count) in [("sent", 11), ("delivered", 10), ("cancelled", 1), ("dead", 1), ("replayed", 1)] {
        assert_eq!(summary[what], json!(count), "{what}: {run:?}");
    }
    assert_eq!(summary["totals"]["balanced"], json!(true));
    for line in ["delivered   order-5", "cancelled   order-6", "dead        poison", "by an HTTP POST"] {
        assert!(run.words.contains(line), "{line}: {}", run.words);
    }
    assert!(!run.words.contains('\x1b'));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
