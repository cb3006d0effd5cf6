//! A great many messages: claims stay as quick, and the index in Redis as small.

use duly::Clock;
use duly_core::Store;
use duly_stores::{RedisAndMysqlStore, redis_and_mysql, sql};
use testkit::{
    bench::report::{Report, quantile},
    servers::redis::Redis,
};

use crate::{
    Arguments,
    bed::{
        BATCH, DatabaseKind, Server, claim, clock_time, delivered, fill, insert, lane, lane_no, later,
        machine, message, store,
    },
};

const FEW: usize = 100_000;
/// So many claims of a full batch are measured.
const CLAIMS: usize = 60;

pub(crate) async fn claims(report: &mut Report, arguments: &Arguments, kind: DatabaseKind) {
    let server = Server::start(kind);
    let database = server.database();
    let (store, clock) = store(&database, 1_000_000).await;
    let now = clock.now();
    store.insert(now, vec![insert(message(0, now.wall(), later(now), arguments.body))]).await.unwrap();
    let (lane_no, first_due) = (lane_no(&server, &database), later(now).as_millis());
    fill(&server, &database, 0, FEW, lane_no, first_due);
    let few = claim_times(&store, &clock, 1, arguments.body).await;
    let begin = clock_time();
    fill(&server, &database, FEW, arguments.many, lane_no, first_due);
    report.alone(
        format!("{}: filling up to {}", kind.name(), arguments.many),
        begin.elapsed().as_secs_f64(),
        "s",
    );
    let many = claim_times(&store, &clock, 2, arguments.body).await;
    for (part, name) in [(0.5, "median"), (0.9, "p90")] {
        report.beside(
            format!("{}: claim of {BATCH} at {} rows, {name}; at {FEW}", kind.name(), arguments.many),
            quantile(&many, part) * 1e3,
            "ms",
            quantile(&few, part) * 1e3,
        );
    }
}

async fn claim_times(
    store: &duly_stores::SqlStore,
    clock: &duly_stores::ServerClock,
    round: usize,
    body: usize,
) -> Vec<f64> {
    let now = clock.now();
    for part in 0..CLAIMS {
        let number = |n: usize| round * 1_000_000 + part * BATCH + n;
        let new = |n: usize| insert(message(number(n), now.wall(), now.wall(), body));
        store.insert(now, (0..BATCH).map(new).collect()).await.unwrap();
    }
    let mut times = Vec::new();
    let mut left = CLAIMS * BATCH;
    while left > 0 {
        let begin = clock_time();
        let claimed = store.claim(clock.now(), claim()).await.unwrap();
        let spent = begin.elapsed().as_secs_f64();
        left -= claimed.messages.len();
        // Ids do not spread evenly over the shards, so the last ones come in smaller parts.
        if claimed.messages.len() * 2 > BATCH {
            times.push(spent);
        }
        if !claimed.messages.is_empty() {
            store.settle(clock.now(), delivered(&claimed.messages)).await.unwrap();
        }
    }
    times.sort_by(f64::total_cmp);
    times
}

/// The memory of Redis beside what waits in MySQL.
pub(crate) async fn memory(report: &mut Report, arguments: &Arguments) {
    let (server, redis) = (Server::start(DatabaseKind::Mysql), Redis::single());
    let database = server.database();
    let options = redis_and_mysql::Options::new(sql::Options::new(1));
    let (store, clock) = RedisAndMysqlStore::join(&redis.url(), &database, options, machine()).await.unwrap();
    let now = clock.now();
    let soon = now.wall().saturating_add(std::time::Duration::from_secs(1800));
    store
        .insert(now, (0..1000).map(|n| insert(message(n, now.wall(), soon, arguments.body))).collect())
        .await
        .unwrap();
    let (lane_no, first_due) = (lane_no(&server, &database), later(now).as_millis());
    let used = || {
        let info: String = redis.run(&["INFO", "memory"]);
        let line =
            info.lines().find_map(|line| line.strip_prefix("used_memory_dataset:")).unwrap().to_owned();
        line.parse::<f64>().unwrap() / 1024.0
    };
    let settle = async || {
        for _ in 0..3 {
            store.sweep(clock.now(), &[lane()]).await.unwrap();
            clock.sleep_until(clock.now().mono().saturating_add(std::time::Duration::from_secs(1))).await;
        }
    };
    // Rows that were accepted by the redis+mysql store are marked, as these are.
    let mark = "UPDATE delay_message SET unindexed_at = queue_at WHERE queue_no > 0 AND message_id LIKE 'fill-%' AND unindexed_at IS NULL";
    fill(&server, &database, 0, FEW, lane_no, first_due);
    server.run(&database, mark);
    settle().await;
    let few = used();
    fill(&server, &database, FEW, arguments.beside_redis, lane_no, first_due);
    server.run(&database, mark);
    settle().await;
    report.beside(
        format!("redis+mysql: Redis's data with {} pending; with {FEW}", arguments.beside_redis),
        used(),
        "KiB",
        few,
    );
}
