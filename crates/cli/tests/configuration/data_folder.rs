//! `duly doctor` on data folders that `duly serve` refuses.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    Folder,
    commands::{duly, json},
};

/// Makes a data folder with a message in it.
fn make(data: &Path) {
    testkit::block_on(async {
        let duly = duly::Duly::open(data).await.expect("a store");
        let message = duly::Message::to("order").id("a").after(duly::hours(2));
        duly.send(message).await.expect("accepted");
        duly.shutdown().await.expect("closed");
    });
}

#[test]
fn the_doctor_says_of_a_refused_data_folder_what_the_server_says() {
    type Break = fn(&Path);
    let cases: [(&str, Break); 5] = [
        ("cannot be read in full", |data| fs::write(data.join("backup-unsound"), "x").expect("a mark")),
        ("was not finished", |data| fs::write(data.join("backup-unfinished"), "").expect("a mark")),
        ("was not finished", |data| {
            fs::remove_file(data.join("manifest")).expect("removed");
            fs::write(data.join("backup-unfinished"), "").expect("a mark");
        }),
        ("has a journal and no manifest", |data| fs::remove_file(data.join("manifest")).expect("removed")),
        ("does not match its checksum", |data| {
            fs::write(data.join("manifest"), "00000000\n{}").expect("bad")
        }),
    ];
    for (words, break_it) in cases {
        let folder = Folder::new();
        let data = folder.0.path().join("duly-data");
        make(&data);
        break_it(&data);
        let served = duly(&folder, &["serve", "--data", "duly-data", "--listen", "127.0.0.1:0"]);
        let said = String::from_utf8_lossy(&served.stderr).into_owned();
        assert!(!served.status.success() && said.contains(words), "{words}: {said}");

        let run = duly(&folder, &["doctor", "--data", "duly-data", "-o", "json"]);
        assert_eq!(run.status.code(), Some(1), "{words}");
        let report = json(&run);
        let all = report["findings"].as_array().expect("findings");
        let text = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        let found =
            all.iter().find(|finding| finding["check"] == "stored messages").expect("it is looked at");
        assert_eq!((&report["ok"], &found["state"]), (&Value::Bool(false), &Value::from("fail")), "{report}");
        let detail = text(found, "detail");
        assert!(detail.contains(words), "{words}: {detail}");
        // No server starts on it: the advice must not be to start one.
        let remedy = text(found, "remedy");
        assert!(remedy.contains("`duly serve` refuses this folder"), "{words}: {remedy}");
    }
}
