//! Two masters, one of them with a slave, and two name servers.

use std::{fs, path::Path};

use super::{
    BROKER, GET_BROKER_CLUSTER_INFO, NAMESRV, READY_WITHIN, remoting, run, settings::store_settings,
};
use crate::servers::{port_lease::SECOND, program::Program, wait_until};

/// Five of these run at once.
const SMALL: [&str; 2] = ["-Xmx192m", "-XX:MaxDirectMemorySize=128m"];
const GET_ROUTEINFO_BY_TOPIC: i32 = 105;
const UPDATE_AND_CREATE_TOPIC: i32 = 17;

/// The masters `a` and `b`, a slave of `a`, and two name servers. Ports and data stay over restarts.
#[derive(Debug)]
pub struct Cluster {
    // Declared before those to whom they speak.
    slave: Node,
    masters: [Node; 2],
    namesrvs: [Node; 2],
}

/// One server of a cluster.
#[derive(Debug)]
pub struct Node {
    program: Program,
    main: (&'static str, &'static str),
    /// What the name servers say when they know it, and where these are.
    known_by: Vec<String>,
}

impl Cluster {
    /// A cluster whose brokers have these lines in their configuration besides, running.
    ///
    /// # Panics
    /// If one of them does not start.
    pub fn with(more: &[&str]) -> Self {
        let namesrvs = [Node::new(NAMESRV, &[]), Node::new(NAMESRV, &[])];
        let names = [namesrvs[0].address(), namesrvs[1].address()];
        let broker = || Node::new(BROKER, &names);
        let cluster = Self { slave: broker(), masters: [broker(), broker()], namesrvs };
        for namesrv in &cluster.namesrvs {
            namesrv.write(&format!("listenPort={}\nbindAddress=127.0.0.1\n", namesrv.program.port()));
        }
        let all = [("a", 0, "ASYNC_MASTER"), ("b", 0, "ASYNC_MASTER"), ("a", 1, "SLAVE")];
        for (node, (name, id, role)) in cluster.brokers().into_iter().zip(all) {
            node.write(&node.broker_settings(&names.join(";"), (name, id, role), more));
        }
        // Side by side: each takes seconds.
        std::thread::scope(|scope| {
            let started: Vec<_> =
                cluster.namesrvs.iter().map(|namesrv| scope.spawn(|| namesrv.start())).collect();
            started.into_iter().for_each(|start| start.join().unwrap());
            for broker in cluster.brokers() {
                scope.spawn(|| broker.start());
            }
        });
        cluster
    }

    fn brokers(&self) -> [&Node; 3] {
        [&self.masters[0], &self.masters[1], &self.slave]
    }

    /// Where clients ask for the way.
    pub fn namesrv(&self) -> String {
        format!("{},{}", self.namesrvs[0].address(), self.namesrvs[1].address())
    }

    /// The name servers.
    pub fn namesrvs(&self) -> &[Node; 2] {
        &self.namesrvs
    }

    /// The masters; the first has a slave.
    pub fn masters(&self) -> &[Node; 2] {
        &self.masters
    }

    /// The slave of the first master.
    pub fn slave(&self) -> &Node {
        &self.slave
    }

    /// Makes a topic of four queues on each of these masters, and waits until both name servers know the last of them.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn make_topic(&self, topic: &str, masters: &[&Node]) {
        for master in masters {
            let fields = [
                ("topic", topic),
                ("defaultTopic", "TBW102"),
                ("readQueueNums", "4"),
                ("writeQueueNums", "4"),
                ("perm", "6"),
                ("topicFilterType", "SINGLE_TAG"),
                ("topicSysFlag", "0"),
                ("order", "false"),
            ];
            let made = remoting::ask(&master.address(), UPDATE_AND_CREATE_TOPIC, &fields).unwrap();
            assert!(made.contains("\"code\":0"), "{made}");
        }
        self.wait_for_route(topic, |route| masters.iter().all(|master| route.contains(&master.address())));
    }

    /// Waits until what both name servers say of a topic is as wanted.
    ///
    /// # Panics
    /// If it never is.
    pub fn wait_for_route(&self, topic: &str, is_so: impl Fn(&str) -> bool) {
        let route =
            |namesrv: &Node| remoting::ask(&namesrv.address(), GET_ROUTEINFO_BY_TOPIC, &[("topic", topic)]);
        wait_until("both name servers know the route", READY_WITHIN, || {
            self.namesrvs.iter().all(|namesrv| route(namesrv).is_ok_and(|route| is_so(&route)))
        });
    }
}

impl Node {
    fn new(main: (&'static str, &'static str), known_by: &[String]) -> Self {
        Self { program: Program::new("java"), main, known_by: known_by.to_vec() }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.program.port())
    }

    /// kill -9.
    pub fn kill(&self) {
        self.program.kill();
    }

    /// Starts it, and waits until all who should know of it do.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) {
        let heap = SMALL.map(str::to_owned);
        // A broker also takes the port two below its own, which nobody keeps for it, and which may be free a little later.
        let started = (0..3).find_map(|_| run(&self.program, self.main, &heap).ok());
        assert!(started.is_some(), "it does not start:\n{}", self.program.log());
        for namesrv in &self.known_by {
            wait_until("the name servers know the broker", READY_WITHIN, || {
                remoting::ask(namesrv, GET_BROKER_CLUSTER_INFO, &[])
                    .is_ok_and(|reply| reply.contains(&self.address()))
            });
        }
    }

    /// SIGSTOP: it does nothing, and its connections stay.
    pub fn pause(&self) {
        self.program.pause();
    }

    /// SIGCONT: it goes on.
    pub fn cont(&self) {
        self.program.cont();
    }

    fn write(&self, settings: &str) {
        fs::write(self.program.folder().join("settings"), settings).unwrap();
    }

    fn broker_settings(&self, namesrv: &str, (name, id, role): (&str, u8, &str), more: &[&str]) -> String {
        let (port, folder): (u16, &Path) = (self.program.port(), self.program.folder());
        let mut text = format!(
            "brokerClusterName=duly\nbrokerName={name}\nbrokerId={id}\nbrokerRole={role}\nbrokerIP1=127.0.0.1\n\
             namesrvAddr={namesrv}\nlistenPort={port}\nhaListenPort={}\nautoCreateTopicEnable=false\n{}",
            port + SECOND,
            store_settings(folder),
        );
        for line in more {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}
