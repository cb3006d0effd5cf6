//! How late messages come: the redis+mysql store beside the Redis store and the commits of the same MySQL.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use duly::{Builder, Clock, Duly, SinkOptions};
use duly_core::{Delivery, Monotonic, Outcomes, Sink, SinkError, Store, Timestamp};
use duly_stores::{RedisAndMysqlStore, RedisStore, SqlStore, redis, redis_and_mysql, sql};
use testkit::{
    bench::report::{Report, quantile},
    servers::redis::Redis,
};

use crate::{
    Arguments,
    bare::Bare,
    bed::{DatabaseKind, Server, clock_time, machine},
};

/// Takes everything at once, and notes how late it came.
struct Target {
    clock: Arc<dyn Clock>,
    late_ms: Mutex<Vec<f64>>,
}

impl Target {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        let now = self.clock.now().wall_micros() as f64;
        let late = batch.iter().map(|delivery| (now - delivery.message.due.as_millis() as f64 * 1e3) / 1e3);
        self.late_ms.lock().unwrap().extend(late);
        batch.iter().map(|_| Ok("1".into())).collect()
    }
}

#[async_trait::async_trait]
impl Sink for Target {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    async fn probe(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

pub(crate) async fn lateness(report: &mut Report, arguments: &Arguments) {
    let (server, redis) = (Server::start(DatabaseKind::Mysql), Redis::single());
    let (store, clock) = RedisStore::join(&redis.url(), redis::Options::new(1), machine()).await.unwrap();
    let by_redis = run(Arc::new(store), Arc::new(clock), arguments).await;
    let (store, clock) = SqlStore::join(&server.database(), sql::Options::new(2), machine()).await.unwrap();
    let by_mysql = run(Arc::new(store), Arc::new(clock), arguments).await;
    let options = redis_and_mysql::Options::new(sql::Options::new(3));
    let (store, clock) =
        RedisAndMysqlStore::join(&redis.url(), &server.database(), options, machine()).await.unwrap();
    let by_pair = run(Arc::new(store), Arc::new(clock), arguments).await;
    let commit = commits(&server).await;
    let p99 = |times: &[f64]| quantile(times, 0.99);
    let rate = arguments.rate;
    report.alone(format!("lateness at {rate}/s, p99: redis"), p99(&by_redis), "ms");
    report.alone(format!("lateness at {rate}/s, p99: mysql"), p99(&by_mysql), "ms");
    report.alone("one commit of that MySQL, p99", p99(&commit), "ms");
    let allowed = p99(&by_redis) + 2.0 * p99(&commit);
    report.beside(format!("lateness at {rate}/s, p99: redis+mysql; allowed"), p99(&by_pair), "ms", allowed);
    report.alone(format!("lateness at {rate}/s, median: redis"), quantile(&by_redis, 0.5), "ms");
    report.alone(format!("lateness at {rate}/s, median: redis+mysql"), quantile(&by_pair, 0.5), "ms");
}

async fn commits(server: &Server) -> Vec<f64> {
    let database = server.database();
    server.run(&database, "CREATE TABLE one_row (n BIGINT NOT NULL); INSERT INTO one_row VALUES (0)");
    let bare = Bare::new(server, &database, DatabaseKind::Mysql).await;
    let mut times = Vec::new();
    for n in 0..2000 {
        let begin = clock_time();
        bare.commit(n).await;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    times
}

/// Messages that are due one after the other, delivered by the library: how late each came.
async fn run(store: Arc<dyn Store>, clock: Arc<dyn Clock>, arguments: &Arguments) -> Vec<f64> {
    let target = Arc::new(Target { clock: clock.clone(), late_ms: Mutex::default() });
    let duly: Duly = Builder::default()
        .store(store)
        .clock(clock.clone())
        .sink("target", target.clone(), SinkOptions::default())
        .start()
        .await
        .unwrap();
    let count = arguments.rate * arguments.seconds;
    let begin = clock.now().wall().as_millis() + 3000;
    let due = |n: u64| Timestamp::from_millis(begin + n * 1000 / arguments.rate);
    let body = "x".repeat(arguments.body);
    let all: Vec<_> =
        (0..count).map(|n| duly::Message::to("target/t").text(body.clone()).at(due(n))).collect();
    for part in all.chunks(500) {
        assert!(duly.send_batch(part.to_vec()).await.iter().all(Result::is_ok));
    }
    let end = clock.now().mono().saturating_add(Duration::from_secs(arguments.seconds + 60));
    wait(&*clock, end, || target.late_ms.lock().unwrap().len() >= count as usize).await;
    let mut late = target.late_ms.lock().unwrap().clone();
    duly.shutdown().await.unwrap();
    assert_eq!(late.len(), count as usize);
    late.sort_by(f64::total_cmp);
    assert!(late[0] >= 0.0, "early by {} ms", -late[0]);
    late
}

async fn wait(clock: &dyn Clock, end: Monotonic, is_so: impl Fn() -> bool) {
    while !is_so() && clock.now().mono() < end {
        clock.sleep_until(clock.now().mono().saturating_add(Duration::from_millis(50))).await;
    }
}
