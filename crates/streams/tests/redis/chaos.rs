//! Three consumers under load, killed -9 and started again at random.
//!
//! Five seconds of it; `DULY_STREAMS_CHAOS_SECONDS=60` for a minute.

use std::{
    collections::HashMap,
    process::{Child, Command, Stdio},
    time::Duration,
};

use duly_streams::{Entry, Retry, Settings, Streams};
use testkit::servers::redis::{Redis, installed};
use tokio::time::Instant;

use crate::{Order, connect, entries};

const URL: &str = "DULY_STREAMS_CHAOS_URL";
const SECONDS: &str = "DULY_STREAMS_CHAOS_SECONDS";
const TOPIC: &str = "chaos";
const GROUP: &str = "duly-streams";
const PER_SECOND: u64 = 5_000;
const ATTEMPTS: u32 = 4;

/// What becomes of a message: most are handled, some always fail, and a few kill whoever handles them.
fn fails(number: u64) -> bool {
    number % 1_000 == 7
}

fn kills(number: u64) -> bool {
    number % 20_000 == 9_013
}

fn settings() -> Settings {
    Settings {
        poll_interval: Duration::from_millis(100),
        processing_timeout: Duration::from_secs(1),
        concurrency: 128,
        retry: Retry {
            attempts: ATTEMPTS,
            crashes: 2,
            min: Duration::from_millis(20),
            max: Duration::from_millis(200),
            ..Retry::default()
        },
        ..Settings::default()
    }
}

/// One of the three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_a_consumer() {
    let Some(url) = std::env::var_os(URL).and_then(|url| url.into_string().ok()) else { return };
    let streams = Streams::connect_with(&url, settings()).await.unwrap();
    let ledger = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let handler = move |order: Entry<Order>| {
        let mut ledger = ledger.clone();
        async move {
            let number = order.value.number;
            if fails(number) || kills(number) {
                redis::cmd("HINCRBY").arg("begun").arg(number).arg(1).exec_async(&mut ledger).await?;
            }
            if kills(number) {
                std::process::abort();
            }
            if fails(number) {
                let why = (redis::ErrorKind::Client, "it always fails");
                return Err(redis::RedisError::from(why));
            }
            redis::cmd("SETBIT").arg("handled").arg(number).arg(1).exec_async(&mut ledger).await
        }
    };
    streams.listener(TOPIC, handler).start().await.unwrap();
    std::future::pending().await
}

/// The three, and how often they died.
struct Consumers {
    url: String,
    children: Vec<Child>,
    killed: usize,
    died: usize,
}

impl Consumers {
    fn start(redis: &Redis) -> Self {
        let mut all = Self { url: redis.url(), children: Vec::new(), killed: 0, died: 0 };
        all.children = (0..3).map(|_| all.one()).collect();
        all
    }

    fn one(&self) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "chaos::as_a_consumer", "--nocapture"]).env(URL, &self.url);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn kill(&mut self, at: usize) {
        self.children[at].kill().unwrap();
        self.children[at].wait().unwrap();
        self.children[at] = self.one();
        self.killed += 1;
    }

    /// Starts again whoever was killed by what it handled.
    fn revive(&mut self) {
        for at in 0..self.children.len() {
            if self.children[at].try_wait().unwrap().is_some() {
                self.children[at] = self.one();
                self.died += 1;
            }
        }
    }
}

impl Drop for Consumers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_is_handled_and_poison_is_a_dead_letter_once_however_consumers_die() {
    if !installed() {
        return;
    }
    let seconds = std::env::var_os(SECONDS).and_then(|s| s.to_str()?.parse().ok()).unwrap_or(5);
    let redis = Redis::single();
    let streams = connect(&redis, settings()).await;
    let mut consumers = Consumers::start(&redis);
    let total = load(&streams, &mut consumers, seconds).await;
    let began = Instant::now();
    let group = streams.group(TOPIC, GROUP).unwrap();
    let mut pulse = tokio::time::interval(Duration::from_millis(50));
    loop {
        let stats = group.stats().await.unwrap();
        if stats.backlog() == 0 && stats.length == total {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{stats:?}");
        pulse.tick().await;
        consumers.revive();
    }
    println!(
        "{total} messages; {} killed at random, {} died of poison; the last was settled {:?} after the last was sent",
        consumers.killed,
        consumers.died,
        began.elapsed()
    );
    drop(consumers);
    streams.shutdown().await.unwrap();
    judge(&redis, total);
}

/// Sends for so long, while the consumers are killed one after the other.
async fn load(streams: &Streams, consumers: &mut Consumers, seconds: u64) -> u64 {
    const TOGETHER: u64 = 50;
    let mut beat = tokio::time::interval(Duration::from_millis(1_000 * TOGETHER / PER_SECOND));
    let mut total = 0;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next_kill = 2_000;
    while total < seconds * PER_SECOND {
        beat.tick().await;
        let orders: Vec<_> = (total..total + TOGETHER).map(|number| Order { number }).collect();
        for sent in streams.send_batch(TOPIC, &orders).await.unwrap() {
            sent.unwrap();
        }
        total += TOGETHER;
        consumers.revive();
        if total >= next_kill {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            consumers.kill((random % 3) as usize);
            // On the average every half second.
            next_kill = total + 1_000 + random % 3_000;
        }
    }
    total
}

fn judge(redis: &Redis, total: u64) {
    let bits: Vec<u8> = redis.run(&["GET", "handled"]);
    let handled =
        |number: u64| bits.get(number as usize / 8).is_some_and(|byte| byte >> (7 - number % 8) & 1 == 1);
    let missing: Vec<_> =
        (0..total).filter(|number| !fails(*number) && !kills(*number) && !handled(*number)).collect();
    let mut letters: HashMap<u64, Vec<u32>> = HashMap::new();
    for letter in entries(redis, &format!("{TOPIC}_dlq")) {
        let order: Order = serde_json::from_str(&letter["body"]).unwrap();
        letters.entry(order.number).or_default().push(letter["duly-dead-attempts"].parse().unwrap());
    }
    let unhandled: Vec<_> = missing.iter().filter(|number| !letters.contains_key(number)).collect();
    assert!(unhandled.is_empty(), "lost: {unhandled:?}");
    assert!(missing.is_empty(), "blamed for what others did: {missing:?}");
    let begun: HashMap<u64, u32> = redis.run(&["HGETALL", "begun"]);
    let (mut fail, mut kill, mut most) = (0, 0, 0);
    for number in (0..total).filter(|number| fails(*number) || kills(*number)) {
        let attempts = letters.remove(&number).unwrap_or_default();
        assert_eq!(attempts.len(), 1, "{number} is a dead letter once: {attempts:?}");
        assert!(attempts[0] <= ATTEMPTS, "{number} was tried {} times", attempts[0]);
        if fails(number) {
            fail += 1;
            most = most.max(begun[&number]);
        } else {
            kill += 1;
            assert_eq!(attempts[0], 2, "it dies twice alone");
        }
    }
    assert!(letters.is_empty(), "nothing else is a dead letter: {letters:?}");
    let beside: Vec<String> = redis.run(&["KEYS", "{chaos}:duly-streams:*"]);
    println!(
        "none lost; {fail} that fail and {kill} that kill are dead letters once each; attempts at most {ATTEMPTS}, \
         begun at most {most} times with those that ended in a kill; left beside the stream: {beside:?}"
    );
    assert!(beside.is_empty(), "{beside:?}");
}
