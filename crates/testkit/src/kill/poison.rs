//! A handler that kills its process: bounded by its attempts, and its neighbours unharmed.

use std::{io::BufRead, path::Path, sync::Arc, time::Duration};

use duly::{Clock, Duly, HandlerOptions, Message, SystemClock};

use super::{
    Role, Wrong,
    child::{Target, open, print_line},
    start,
};

/// Tries that a task has.
const ATTEMPTS: u32 = 3;
const NEIGHBOURS: usize = 9;
/// More deaths than any right engine lets happen.
const DEATHS_MAX: u64 = 20;

/// What a run with a poison message left.
#[derive(Debug, Default)]
pub struct Autopsy {
    /// How often the process died.
    pub deaths: u64,
    /// The states of all messages at the end, by id.
    pub states: Vec<(String, String)>,
}

/// The child: accepts a poison message among neighbours, once, and handles what is there.
pub async fn poison(folder: &Path, life: u64) {
    let clock = SystemClock::new().unwrap();
    let store = open(folder, &clock).await;
    let target = Arc::new(Target::open(folder, &clock).unwrap());
    let failed = Duration::from_millis(50);
    let handlers = HandlerOptions { attempts: ATTEMPTS, failed, ..HandlerOptions::default() };
    let builder = Duly::builder().store(store).clock(Arc::new(clock.clone())).handlers(handlers);
    let duly = builder.start().await.unwrap();
    let ids: Vec<_> =
        (0..NEIGHBOURS).map(|n| format!("neighbour-{n}")).chain(["poison".to_owned()]).collect();
    if life == 0 {
        let messages = ids.iter().map(|id| Message::to("jobs").id(id.as_str()));
        duly.send_batch(messages).await.into_iter().for_each(|answer| _ = answer.unwrap());
    }
    let handler = move |task: duly::Task| {
        let target = target.clone();
        async move {
            if task.id() == "poison" {
                std::process::abort();
            }
            target.take(task.message_id(), task.due())
        }
    };
    duly.handle("jobs", handler).start().await.unwrap();
    loop {
        let totals = duly.totals().await.unwrap();
        if totals.pending + totals.in_flight == 0 {
            break;
        }
        clock.sleep_until(clock.now().mono().saturating_add(Duration::from_millis(10))).await;
    }
    for id in &ids {
        let record = duly.get(id.as_str()).await.unwrap();
        print_line(&format!("state {id} {}", record.map_or("unknown", |record| record.state.as_str())));
    }
    duly.shutdown().await.unwrap();
}

/// Starts the child again and again until it survives, and reads what it says.
pub fn poisoned(program: &Path, folder: &Path) -> Result<Autopsy, Wrong> {
    let mut autopsy = Autopsy::default();
    loop {
        let (mut child, lines) = start(program, Role::Poison, folder, autopsy.deaths);
        for line in lines.lines().map_while(Result::ok) {
            if let ["state", id, state, "."] = line.split(' ').collect::<Vec<_>>()[..] {
                autopsy.states.push((id.into(), state.into()));
            }
        }
        if child.wait().unwrap().success() {
            return Ok(autopsy);
        }
        autopsy.deaths += 1;
        if autopsy.deaths >= DEATHS_MAX {
            return Err(Wrong(format!("the process died {} times of one message", autopsy.deaths)));
        }
    }
}
