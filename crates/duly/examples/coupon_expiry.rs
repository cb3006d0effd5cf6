//! Coupons: a reminder some time before the end, and the end itself. Tasks with nothing but a queue, an id and a time.
//!
//! `cargo run --example coupon_expiry`

use std::time::Duration;

use duly::{Duly, Task, Verdict, millis};

/// Thirty days in real life.
const VALID: Duration = millis(2_000);
/// The day before.
const REMIND_BEFORE: Duration = millis(800);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let duly = Duly::open(folder.path()).await?;
    let (ended, mut last) = tokio::sync::mpsc::unbounded_channel();

    duly.handle("coupon-reminder", |task: Task| async move {
        println!("{} coupon {}: ends soon, a mail goes out", task.due(), task.id());
        Verdict::Done
    })
    .start()
    .await?;
    duly.handle("coupon-end", move |task: Task| {
        let ended = ended.clone();
        async move {
            // "Again" is no failure: the task comes back a little later.
            if task.id() == "SPRING-2" && task.attempt() == 1 {
                println!("{} coupon {}: the database is busy, again later", task.due(), task.id());
                return Verdict::retry();
            }
            println!("{} coupon {}: ended", task.due(), task.id());
            let _ = ended.send(());
            Verdict::Done
        }
    })
    .again(millis(300))
    .concurrency(4)
    .start()
    .await?;

    let end = duly.now().saturating_add(VALID);
    for coupon in ["SPRING-1", "SPRING-2", "SPRING-3"] {
        duly.add_task("coupon-reminder", coupon, end.saturating_sub(REMIND_BEFORE)).await?;
        duly.add_task("coupon-end", coupon, end).await?;
        // One task id once per queue: adding it again changes nothing.
        assert!(duly.add_task("coupon-end", coupon, end).await?.duplicate);
    }
    println!("{} three coupons, ending at {end}", duly.now());

    for _ in 0..3 {
        last.recv().await;
    }
    duly.shutdown().await?;
    Ok(())
}
