//! Three nodes, their targets, and the load on them.

use std::{sync::Arc, time::Duration};

use duly_core::schedule::Random;
use serde_json::Value;
use testkit::servers::{
    proxy::Proxy,
    redis::{Options, Redis},
};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    ledger::Ledger,
    load::{Load, Time},
    node::{LEASE, Node, Ways, redis_at},
    targets::{Arrivals, Hook, in_streams},
};

/// What does not come within this does not come at all: once the faults are over, nothing may be overdue for longer.
pub(crate) const QUIET_WITHIN: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["anna", "bert", "cleo"];

pub(crate) struct Bed {
    case: &'static str,
    pub(crate) nodes: Arc<Vec<Node>>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) time: Time,
    pub(crate) random: Random,
    pub(crate) there: Arc<Redis>,
    hook: Hook,
    senders: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// What is known when all is quiet.
pub(crate) struct Quiet {
    pub(crate) case: &'static str,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) here: Arrivals,
    pub(crate) there: Arrivals,
    pub(crate) hook: Arrivals,
    /// What each node says of the whole.
    pub(crate) totals: Vec<Value>,
    pub(crate) nodes: Arc<Vec<Node>>,
    /// From the end of the load until then.
    pub(crate) after_ms: u64,
}

/// When the first node was cut from its store.
pub(crate) struct Cut {
    from_ms: u64,
    to_ms: u64,
}

impl Cut {
    /// The node posted nothing without a lease, and posts again since the cut ended.
    pub(crate) fn check(&self, quiet: &Quiet) {
        let posted: Vec<u64> = quiet
            .hook
            .values()
            .flatten()
            .filter(|copy| copy.from == NAMES[0])
            .map(|copy| copy.at_ms)
            .collect();
        // Its lease began before the cut. One lease more, for a machine that is busy.
        let silent = self.from_ms + 2 * LEASE.as_millis() as u64..self.to_ms;
        let wrong: Vec<_> = posted.iter().filter(|at| silent.contains(at)).collect();
        assert!(wrong.is_empty(), "posted without a lease: {wrong:?} of {silent:?}");
        assert!(posted.iter().any(|at| *at > self.to_ms), "it delivers again");
    }
}

/// A Redis whose file has everything that it answered for.
pub(crate) fn careful() -> Redis {
    let words = ["--appendfsync", "always"].map(str::to_owned);
    Redis::with(Options { more: words.into(), ..Options::default() })
}

/// What load and faults are drawn from, beside the name of the case: the same every time, unless a long run says otherwise.
#[expect(clippy::disallowed_methods, reason = "`cargo xtask chaos` has no other way to tell a test")]
fn seed() -> u64 {
    std::env::var("DULY_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default()
}

/// Another database of the same Redis.
fn beside(redis: &str) -> String {
    format!("{redis}/1")
}

impl Bed {
    /// Three nodes under load on the Redis at `store`.
    pub(crate) async fn on(case: &'static str, store: &str) -> Self {
        Self::with(case, store, |_, _, _| ()).await
    }

    /// The same; `change` may lead a node elsewhere: it is given the node's place, and the Redis of the other streams.
    pub(crate) async fn with(
        case: &'static str,
        store: &str,
        mut change: impl FnMut(usize, &mut Ways, &Redis),
    ) -> Self {
        Self::beside(case, |place, ways, there| {
            (ways.store, ways.here) = (redis_at(store), store.into());
            change(place, ways, there);
        })
        .await
    }

    /// Three nodes under load, whose store `set` names. Both kinds of streams are in one Redis.
    pub(crate) async fn beside(case: &'static str, mut set: impl FnMut(usize, &mut Ways, &Redis)) -> Self {
        let time = Time::new();
        let (there, hook) = (Arc::new(careful()), Hook::start(time.clone()));
        let mut node = |(place, name): (usize, &&str)| {
            let mut ways = Ways {
                store: String::new(),
                here: beside(&there.url()),
                there: there.url(),
                hook: hook.url(),
            };
            set(place, &mut ways, &there);
            Node::new(name, &ways)
        };
        let nodes: Arc<Vec<Node>> = Arc::new(NAMES.iter().enumerate().map(&mut node).collect());
        nodes.iter().for_each(Node::start);
        let (stop, stopped) = watch::channel(false);
        let seed = case.bytes().fold(seed(), |sum, byte| sum.wrapping_mul(31) ^ u64::from(byte));
        let mut bed = Self {
            case,
            nodes,
            ledger: Arc::default(),
            time,
            random: Random::new(seed),
            there,
            hook,
            senders: JoinSet::new(),
            stop,
        };
        bed.wait_until_ready().await;
        let load = Load {
            nodes: bed.nodes.clone(),
            ledger: bed.ledger.clone(),
            time: bed.time.clone(),
            stop: stopped,
        };
        bed.senders = load.start(seed);
        bed
    }

    pub(crate) async fn wait_until_ready(&self) {
        for node in self.nodes.iter() {
            self.until(&format!("{} is ready", node.name), async || node.is_ready().await).await;
        }
    }

    /// Asks again and again until the answer is yes.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let begin = self.time.wall_ms();
        while !is_so().await {
            let late = Duration::from_millis(self.time.wall_ms().saturating_sub(begin)) > QUIET_WITHIN;
            if late {
                let state = self.state().await;
                panic!("{}: not within {QUIET_WITHIN:?}: {what}\n{state}\n{}", self.case, self.logs());
            }
            self.time.pass_ms(20).await;
        }
    }

    /// Until so many more were accepted: faults come among work.
    pub(crate) async fn accept_more(&self, count: usize) {
        let enough = self.ledger.accepted() + count;
        self.until("messages are accepted", async || self.ledger.accepted() >= enough).await;
    }

    /// A number below `end`.
    pub(crate) fn draw(&mut self, end: u64) -> u64 {
        self.random.draw() % end
    }

    /// kill -9 of a node, which starts again after a while that is drawn: at once, soon, or past its lease. What `ways`
    /// hold back arrives just before it starts, when other nodes may have taken its place.
    pub(crate) async fn kill_for_a_while<'a>(
        &mut self,
        victim: usize,
        ways: impl IntoIterator<Item = &'a Proxy>,
    ) {
        self.nodes[victim].kill();
        let away = [0, 200, LEASE.as_millis() as u64 + 500][self.draw(3) as usize];
        self.time.pass_ms(away).await;
        ways.into_iter().for_each(Proxy::release);
        self.nodes[victim].start();
    }

    /// SIGSTOP of the first node past its lease, while `ways` hold back what it sends.
    pub(crate) async fn sleep_past_the_lease(&self, ways: &[Proxy]) {
        self.accept_more(150).await;
        ways.iter().for_each(Proxy::hold);
        // Messages become due meanwhile and are sent. The node gives none of them up before it sleeps.
        self.time.pass(LEASE * 4 / 10).await;
        self.nodes[0].pause();
        self.time.pass(LEASE * 2).await;
        // Other nodes have taken over. What was sent arrives only now, and the sender wakes up.
        ways.iter().for_each(Proxy::release);
        self.nodes[0].cont();
    }

    /// Cuts the first node from its store, by its `way` there, for three leases.
    pub(crate) async fn cut_from_the_store(&self, way: &Proxy) -> Cut {
        self.accept_more(100).await;
        way.hold();
        let from_ms = self.time.wall_ms();
        self.time.pass(LEASE * 3).await;
        let to_ms = self.time.wall_ms();
        assert!(!self.nodes[0].is_ready().await, "a node without its store says so");
        way.release();
        self.until("the node is there again", async || self.nodes[0].is_ready().await).await;
        // It delivers again.
        self.accept_more(200).await;
        Cut { from_ms, to_ms }
    }

    /// What the nodes say of what waits and of what is under way.
    async fn state(&self) -> String {
        let mut said = String::new();
        for node in self.nodes.iter() {
            for path in ["/readyz", "/v1/nodes", "/v1/sinks"] {
                said += &format!("{} {path}: {:?}\n", node.name, node.get(path).await);
            }
        }
        for state in ["pending", "in_flight"] {
            let path = format!("/v1/messages?state={state}&limit=3");
            said += &format!("{state}: {:?}\n", self.nodes[0].get(&path).await);
        }
        said
    }

    fn logs(&self) -> String {
        let last = |node: &Node| {
            let log = node.log();
            let lines: Vec<_> = log.lines().collect();
            format!("--- {}\n{}\n", node.name, lines[lines.len().saturating_sub(30)..].join("\n"))
        };
        self.nodes.iter().map(last).collect()
    }

    /// [`quiet`](Self::quiet), when the store is in no Redis.
    pub(crate) async fn quiet_beside(self) -> Quiet {
        let here = ::redis::Client::open(beside(&self.there.url())).unwrap();
        self.quiet(&mut here.get_connection().unwrap()).await
    }

    /// The faults are over: stops the load, and waits until nothing waits or is under way. Then looks at what arrived.
    pub(crate) async fn quiet(mut self, here: &mut impl ::redis::ConnectionLike) -> Quiet {
        self.stop.send_replace(true);
        let mut senders = std::mem::take(&mut self.senders);
        let all = async {
            while let Some(done) = senders.join_next().await {
                done.unwrap();
            }
        };
        if tokio::time::timeout(QUIET_WITHIN, all).await.is_err() {
            panic!("{}: senders get no answer\n{}", self.case, self.logs());
        }
        let begin = self.time.wall_ms();
        self.wait_until_ready().await;
        self.until("nothing waits and nothing is under way", async || {
            let said = self.nodes[0].get("/v1/stats").await;
            said.is_ok_and(|(_, stats)| stats["totals"]["pending"] == 0 && stats["totals"]["in_flight"] == 0)
        })
        .await;
        let after_ms = self.time.wall_ms() - begin;
        let mut totals = Vec::new();
        for node in self.nodes.iter() {
            totals.push(node.get("/v1/stats").await.unwrap().1["totals"].clone());
        }
        Quiet {
            case: self.case,
            here: in_streams(here),
            there: in_streams(&mut self.there.connection()),
            hook: self.hook.arrivals(),
            ledger: self.ledger,
            totals,
            nodes: self.nodes,
            after_ms,
        }
    }
}
