//! `duly backup`.

use std::{fs, path::Path};

use duly::{Duly, Message, hours};
use serde_json::{Value, json};

use super::{duly, run};

/// A data folder with `count` messages, closed.
fn folder(count: u8) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    testkit::block_on(async {
        let duly = Duly::open(folder.path().join("data")).await.unwrap();
        for number in 0..count {
            let body = vec![b'a' + number; 500];
            duly.send(Message::to("order").id(format!("m-{number}")).bytes(body).after(hours(1)))
                .await
                .unwrap();
        }
        duly.shutdown().await.unwrap();
        // After another start the journal no longer has them: the tables alone do.
        let again = Duly::open(folder.path().join("data")).await.unwrap();
        again.shutdown().await.unwrap();
    });
    folder
}

/// Flips a bit in the body of a message, in its table.
fn damage(data: &Path, number: u8) {
    let body = [b'a' + number; 100];
    let mut is_found = false;
    for file in fs::read_dir(data).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "data") {
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(body.len()).position(|window| window == body) {
            bytes[at + 50] ^= 1;
            fs::write(&path, &bytes).unwrap();
            is_found = true;
        }
    }
    assert!(is_found, "the body of message {number} is in no table");
}

#[test]
fn a_copy_that_cannot_be_read_is_a_failure_and_is_marked() {
    let folder = folder(3);
    let data = folder.path().join("data");
    // What is refused leaves nothing behind.
    let inside = run(duly().arg("backup").arg(data.join("new/inside")).arg("--data").arg(&data), b"");
    assert!(inside.code == 1 && inside.words.contains("inside the data folder"), "{inside:?}");
    assert!(!data.join("new").exists());
    let backup = |to: &str, verify: bool| {
        let mut command = duly();
        command.arg("backup").arg(folder.path().join(to)).arg("--data").arg(&data);
        if verify {
            command.arg("--verify");
        }
        run(&mut command, b"")
    };
    let sound = backup("sound", true);
    assert_eq!(sound.code, 0, "{sound:?}");
    assert!(sound.out.contains("3 messages read in the copy, all sound"), "{sound:?}");
    damage(&data, 1);
    for (to, verify, words) in [
        ("copied", false, "; the data folder has the same damage"),
        ("damaged", true, "is not sound, and not to be relied on: 1 cannot be read any more: m-1"),
    ] {
        let damaged = backup(to, verify);
        assert_eq!((damaged.code, damaged.out.as_str()), (1, ""), "{damaged:?}");
        assert!(damaged.words.contains(words), "{damaged:?}");
        // Marked, so that nobody takes it for a good one; whoever has nothing better removes the mark.
        let copy = folder.path().join(to);
        let mark = fs::read_to_string(copy.join("backup-unsound")).unwrap();
        assert!(mark.contains("cannot be read any more"), "{mark}");
        let opened = testkit::block_on(Duly::open(&copy)).err().unwrap().to_string();
        assert!(opened.contains("remove that file to open it all the same"), "{opened}");
        fs::remove_file(copy.join("backup-unsound")).unwrap();
        testkit::block_on(async { Duly::open(&copy).await.unwrap().shutdown().await.unwrap() });
    }
}

#[test]
fn the_messages_that_cannot_be_read_are_named_by_their_ids() {
    let folder = folder(24);
    let data = folder.path().join("data");
    for number in 1..24 {
        damage(&data, number);
    }
    let names: Vec<_> = (1..24).map(|number| format!("m-{number}")).collect();
    for (to, more) in [("verified", &["--verify"][..]), ("copied", &[])] {
        let mut command = duly();
        command.arg("backup").arg(folder.path().join(to)).arg("--data").arg(&data).args(["-o", "json"]);
        let run = run(command.args(more), b"");
        assert_eq!(run.code, 1, "{run:?}");
        let summary: Value = serde_json::from_str(&run.out).unwrap();
        let damaged = &summary["damaged"];
        assert_eq!((&damaged["count"], &damaged["more"]), (&json!(23), &json!(3)), "{summary}");
        let mut ids: Vec<&str> = damaged["ids"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 20, "{ids:?}");
        assert!(ids.iter().all(|id| names.iter().any(|name| name == id)), "{ids:?}");
        let mark = fs::read_to_string(folder.path().join(to).join("backup-unsound")).unwrap();
        for words in [&run.words, &mark] {
            assert!(ids.iter().all(|id| words.contains(id)) && words.contains("and 3 more"), "{words}");
        }
    }
}
