//! `duly backup`.

use std::{fs, path::Path};

use duly::{Duly, Message, hours};

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
fn a_copy_that_cannot_be_read_is_a_failure_with_verify() {
    let folder = folder(3);
    let data = folder.path().join("data");
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
    assert_eq!(backup("unread", false).code, 0, "bytes are copied as they are");
    let damaged = backup("damaged", true);
    assert_eq!((damaged.code, damaged.out.as_str()), (1, ""), "{damaged:?}");
    let words = "is not sound, and not to be relied on: 1 cannot be read any more";
    assert!(damaged.words.contains(words), "{damaged:?}");
}
