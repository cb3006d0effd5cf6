//! A master, a replica, and three sentinels that watch over them.

use std::{collections::HashMap, fs, time::Duration};

use super::{Options, READY_WITHIN, Redis};
use crate::servers::{port_lease::PortLease, process::Process, wait_until};

/// What the sentinels call the pair.
pub const MASTER: &str = "duly";

/// A master and a replica, either of which may be it, under three sentinels.
#[derive(Debug)]
pub struct Sentinels {
    // Declared first: they are gone before those whose end they would notice.
    sentinels: Vec<Sentinel>,
    pair: [Redis; 2],
}

#[derive(Debug)]
struct Sentinel {
    _process: Process,
    port_lease: PortLease,
}

impl Sentinels {
    /// All five, once they know of each other. A master that is away for a second is replaced.
    ///
    /// # Panics
    /// If Redis is not installed or they do not find each other.
    pub fn start() -> Self {
        Self::with_patience(Duration::from_secs(1))
    }

    /// The same, with sentinels that wait so long before they give up a master that is away.
    ///
    /// # Panics
    /// If Redis is not installed or they do not find each other.
    pub fn with_patience(patience: Duration) -> Self {
        let master = Redis::single();
        let port = master.port().to_string();
        let words = ["--replicaof", "127.0.0.1", &port].map(str::to_owned);
        let replica = Redis::with(Options { more: words.into(), ..Options::default() });
        let sentinels = (0..3).map(|_| Sentinel::start(master.port(), patience)).collect();
        let all = Self { sentinels, pair: [master, replica] };
        all.wait_until_ok();
        all
    }

    /// Where clients go: the sentinels, and the name of the pair.
    pub fn url(&self) -> String {
        let all = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port_lease.port()));
        format!("redis-sentinel://{}/{MASTER}", all.collect::<Vec<_>>().join(","))
    }

    /// The two servers; the first was the master at the beginning.
    pub fn pair(&self) -> &[Redis; 2] {
        &self.pair
    }

    /// The place among [`pair`](Self::pair) of the one that most sentinels take for the master.
    pub fn master(&self) -> usize {
        let said: Vec<u16> = self.sentinels.iter().filter_map(Sentinel::master).collect();
        let votes = |node: &usize| said.iter().filter(|port| **port == self.pair[*node].port()).count();
        (0..2).max_by_key(votes).unwrap()
    }

    /// Kills the master and returns when the sentinels have made the other one it. Answers its place.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn fail_over(&self) -> usize {
        let old = self.master();
        let new = 1 - old;
        self.pair[old].kill();
        wait_until("a failover", READY_WITHIN, || {
            // A server that becomes the master closes its connections: then there is no answer, and the next one counts.
            let role = |node: &Redis| {
                let reply = ask::<String>(node.port(), &["INFO", "replication"]);
                reply.is_ok_and(|reply| reply.contains("role:master"))
            };
            let all = |sentinel: &Sentinel| sentinel.master() == Some(self.pair[new].port());
            role(&self.pair[new]) && self.sentinels.iter().all(all)
        });
        new
    }

    fn wait_until_ok(&self) {
        wait_until("the sentinels know of each other", READY_WITHIN, || {
            let linked =
                self.pair[1].run::<String>(&["INFO", "replication"]).contains("master_link_status:up");
            linked && self.sentinels.iter().all(Sentinel::is_ok)
        });
    }
}

impl Sentinel {
    fn start(master: u16, patience: Duration) -> Self {
        for _ in 0..5 {
            let port_lease = PortLease::new();
            let (port, folder) = (port_lease.port(), port_lease.folder().display());
            let text = format!(
                "port {port}\nbind 127.0.0.1\ndir {folder}\nlogfile {folder}/log\n\
                 sentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds {MASTER} {}\nsentinel failover-timeout {MASTER} 5000\n",
                patience.as_millis(),
            );
            let file = port_lease.folder().join("sentinel.conf");
            fs::write(&file, text).unwrap();
            let mut process = Process::start("redis-sentinel", &[file.display().to_string()]);
            let mut alive = true;
            wait_until("redis-sentinel answers", READY_WITHIN, || {
                alive = process.is_alive();
                !alive || ask(port, &["PING"]).is_ok_and(|answer: String| answer == "PONG")
            });
            if alive {
                return Self { _process: process, port_lease };
            }
        }
        panic!("redis-sentinel did not start");
    }

    fn is_ok(&self) -> bool {
        let asked: redis::RedisResult<HashMap<String, String>> =
            ask(self.port_lease.port(), &["SENTINEL", "MASTER", MASTER]);
        asked.is_ok_and(|said| {
            let is = |name: &str, value: &str| said.get(name).is_some_and(|text| text == value);
            is("num-slaves", "1") && is("num-other-sentinels", "2") && is("flags", "master")
        })
    }

    fn master(&self) -> Option<u16> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
        ask::<(String, u16)>(self.port_lease.port(), &words).ok().map(|(_, port)| port)
    }
}

fn ask<T: redis::FromRedisValue>(port: u16, words: &[&str]) -> redis::RedisResult<T> {
    let client = redis::Client::open(("127.0.0.1", port))?;
    redis::Cmd::new().arg(words).query(&mut client.get_connection_with_timeout(READY_WITHIN)?)
}
