//! Alarms that are escalated unless somebody reads them in time: P0 after 5 minutes, P1 after 10, all others after 20.
//!
//! Needs a Redis: `cargo run -p duly-streams --example unread_alarms -- --fast`, with an address behind it if it is not on this machine. `--fast` makes
//! a minute of a tenth of a second. Start it several times at once: every alarm is escalated by one of them.

use std::{error::Error, time::Duration};

use duly_streams::{Cancelled, ExpiredTimer, Settings, Streams};
use redis::AsyncCommands;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Debug, Serialize, Deserialize)]
struct Alarm {
    name: String,
    level: String,
}

/// Producers name the level, operators set the time.
fn minutes(level: &str) -> u32 {
    match level {
        "P0" => 5,
        "P1" => 10,
        _ => 20,
    }
}

/// Where it is kept which alarms were read.
const READ: &str = "example.alarms.read";
/// The braces keep all timers together on a cluster.
const PREFIX: &str = "{example.alarm}:";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (flags, others): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let minute = Duration::from_millis(if flags.iter().any(|flag| flag == "--fast") { 100 } else { 60_000 });
    let url = others.first().map_or("redis://127.0.0.1", String::as_str);
    unread_alarms(url, minute).await?;
    Ok(())
}

/// The alarms that are escalated, in the order of their times.
pub(crate) async fn unread_alarms(url: &str, minute: Duration) -> Result<Vec<String>, Box<dyn Error>> {
    // An example may lose what waits; in earnest, turn on the append-only file.
    let streams =
        Streams::connect_with(url, Settings { allow_volatile: true, ..Settings::default() }).await?;
    let mut inbox = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let timers = streams.expiry_timers(PREFIX)?;

    let (checked, mut checks) = mpsc::unbounded_channel();
    let query = inbox.clone();
    let check = move |alarm: ExpiredTimer<Alarm>| {
        let (checked, mut query) = (checked.clone(), query.clone());
        async move {
            let Alarm { name, level } = &alarm.value;
            // Look again: the timer says that it is time to look, the inbox says how things stand. If it cannot be asked, this fails and
            // is tried again.
            let is_read: bool = query.sismember(READ, name).await?;
            if is_read {
                println!("{name}: read in the last moment, no escalation");
            } else {
                println!("{name}: still unread after {} minutes as {level}, escalated", minutes(level));
            }
            let _ = checked.send((!is_read).then(|| name.clone()));
            Ok::<_, redis::RedisError>(())
        }
    };
    timers.listener(check).start().await?;

    for (name, level) in
        [("disk-full", "P0"), ("backup-late", "P1"), ("cert-expires", "P1"), ("odd-noise", "P7")]
    {
        let alarm = Alarm { name: name.to_owned(), level: level.to_owned() };
        timers.set(&format!("{PREFIX}{name}"), &alarm, minute * minutes(level)).await?;
        println!("{name}: raised as {level}");
    }

    // Somebody reads two of them. For the first, the check is taken back; for the second, whoever should have done so died.
    for name in ["backup-late", "cert-expires"] {
        inbox.sadd::<_, _, ()>(READ, name).await?;
    }
    if let Cancelled::Done { .. } = timers.cancel(&format!("{PREFIX}backup-late")).await? {
        println!("backup-late: read, its check is taken back");
    }

    let mut escalated = Vec::new();
    for _ in 0..3 {
        escalated.extend(checks.recv().await.flatten());
    }
    inbox.del::<_, ()>(READ).await?;
    streams.shutdown().await?;
    Ok(escalated)
}
