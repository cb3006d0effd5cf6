//! Check later, act if still unread: an alarm that nobody reads within the time of its level is escalated.
//!
//! `cargo run --example alarm_escalation`

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use duly::{Changed, Duly, Levels, Message, Task, Verdict, millis};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Alarm {
    name: String,
    level: String,
}

/// The alarms that somebody has read.
type Inbox = Arc<Mutex<HashSet<String>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    // Producers name the level, operators set the time: 5, 10 and 20 minutes in earnest.
    let levels = Levels::none()
        .set("P0", millis(500))
        .set("P1", millis(1_000))
        .set("other", millis(2_000))
        .fallback("other");
    let duly = Duly::builder().folder(folder.path()).levels(levels).start().await?;
    let inbox = Inbox::default();
    let (checked, mut checks) = tokio::sync::mpsc::unbounded_channel();

    let read = inbox.clone();
    duly.handle("alarm-check", move |task: Task| {
        let (read, checked) = (read.clone(), checked.clone());
        async move {
            let alarm: Alarm = task.json()?;
            // Look again: the message says that it is time to look, the inbox says how things stand.
            if is_read(&read, &alarm.name) {
                println!("{}: read in the last moment, no escalation", alarm.name);
            } else {
                println!("{}: still unread after the time of {}, escalated", alarm.name, alarm.level);
            }
            let _ = checked.send(());
            Ok::<_, duly::Error>(Verdict::Done)
        }
    })
    .start()
    .await?;

    for (name, level) in
        [("disk-full", "P0"), ("backup-late", "P1"), ("cert-expires", "P1"), ("odd-noise", "P7")]
    {
        let alarm = Alarm { name: name.to_owned(), level: level.to_owned() };
        let check = Message::to("alarm-check").id(name).json(&alarm)?.level(level);
        println!("{name}: raised as {level}, checked at {}", duly.send(check).await?.due);
    }

    // Somebody reads one in time, and its check is taken back.
    set_read(&inbox, "backup-late");
    if let Changed::Done { .. } = duly.cancel("backup-late").await? {
        println!("backup-late: read, its check is cancelled");
    }
    // Another is read, but nobody cancels its check: looking again saves the escalation.
    set_read(&inbox, "cert-expires");

    for _ in 0..3 {
        checks.recv().await;
    }
    duly.shutdown().await?;
    Ok(())
}

fn set_read(inbox: &Inbox, name: &str) {
    if let Ok(mut inbox) = inbox.lock() {
        inbox.insert(name.to_owned());
    }
}

fn is_read(inbox: &Inbox, name: &str) -> bool {
    inbox.lock().is_ok_and(|inbox| inbox.contains(name))
}
