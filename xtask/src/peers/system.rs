//! The systems, each with its servers and what an accepted message survives. A file per server is in `servers`.

use super::servers::{Beanstalkd, Duly, Epmd, Postgres, Rabbitmq, Redis, Server, Store};

/// Which program sends and receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Driver {
    Go(&'static str),
    Node(&'static str),
}

pub(super) struct System {
    pub(super) name: &'static str,
    /// When it answers that a message is accepted.
    pub(super) durability: &'static str,
    pub(super) driver: Driver,
    /// In the order in which they start; the driver speaks to the last one.
    pub(super) servers: &'static [&'static dyn Server],
}

const EVERYSEC: &str = "Redis AOF everysec: a power cut loses the last second";
const COMMIT: &str = "commit with fsync";

pub(super) const ALL: [System; 9] = [
    System {
        name: "duly",
        durability: "fsync, one for all that wait",
        driver: Driver::Go("duly"),
        servers: &[&Duly(Store::Embedded)],
    },
    System {
        name: "duly-redis",
        durability: EVERYSEC,
        driver: Driver::Go("duly"),
        servers: &[&Redis, &Duly(Store::Redis)],
    },
    System {
        name: "duly-postgres",
        durability: COMMIT,
        driver: Driver::Go("duly"),
        servers: &[&Postgres, &Duly(Store::Postgres)],
    },
    System {
        name: "beanstalkd",
        durability: "binlog, fsync at every put",
        driver: Driver::Go("beanstalkd"),
        servers: &[&Beanstalkd { fsync_ms: 0 }],
    },
    System {
        name: "beanstalkd-50ms",
        durability: "binlog, fsync every 50 ms: a power cut loses those",
        driver: Driver::Go("beanstalkd"),
        servers: &[&Beanstalkd { fsync_ms: 50 }],
    },
    System { name: "bullmq", durability: EVERYSEC, driver: Driver::Node("bullmq"), servers: &[&Redis] },
    System { name: "asynq", durability: EVERYSEC, driver: Driver::Go("asynq"), servers: &[&Redis] },
    System {
        name: "rabbitmq",
        durability: "persistent, confirmed; dead-lettered without confirm",
        driver: Driver::Go("rabbitmq"),
        servers: &[&Epmd, &Rabbitmq],
    },
    System {
        name: "graphile-worker",
        durability: COMMIT,
        driver: Driver::Node("graphile-worker"),
        servers: &[&Postgres],
    },
];

/// What may be asked for.
pub(super) fn names() -> Vec<&'static str> {
    ALL.iter().map(|system| system.name).collect()
}

impl System {
    /// How to install the first program that is not there.
    pub(super) fn missing(&self, is_there: impl Fn(&str) -> bool) -> Option<&'static str> {
        let of_driver: &[(&str, &str)] = match self.driver {
            Driver::Go(_) => &[("go", "install Go 1.25 or newer")],
            Driver::Node(_) => {
                &[("node", "install Node.js 20 or newer"), ("npm", "install npm, which comes with Node.js")]
            }
        };
        let of_servers = self.servers.iter().flat_map(|server| server.programs());
        of_driver.iter().chain(of_servers).find(|(program, _)| !is_there(program)).map(|(_, how)| *how)
    }

    pub(super) fn has_duly(&self) -> bool {
        matches!(self.driver, Driver::Go("duly"))
    }
}
