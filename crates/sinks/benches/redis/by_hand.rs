//! The recipes: a sorted set by due time whose members are the messages.

use std::time::Duration;

use redis::{Connection, Script, cmd, pipe};
use testkit::bench::report::Report;

use crate::{
    Arguments,
    bed::{Cost, STREAM, Watch, lateness, redis_now, rest, server},
};

const SET: &str = "delayed";
/// Batches that the bare script is tried with; the best counts.
const BATCHES: [usize; 3] = [200, 1_000, 5_000];

/// A member: a number, so that all differ, and the body.
fn member(n: usize, body: usize) -> String {
    format!("{n:010}{}", "x".repeat(body.saturating_sub(10)))
}

fn fill(connection: &mut Connection, count: usize, body: usize) {
    for first in (0..count).step_by(1000) {
        let mut all = pipe();
        for n in first..(first + 1000).min(count) {
            all.cmd("ZADD").arg(SET).arg(1).arg(member(n, body)).ignore();
        }
        all.exec(connection).unwrap();
    }
}

/// `ZRANGEBYSCORE`, then `ZREM` and `XADD` of each, one after the other. Gives how many.
fn poll(connection: &mut Connection, now: u64) -> usize {
    let due: Vec<(String, f64)> =
        cmd("ZRANGEBYSCORE").arg(SET).arg("-inf").arg(now).arg("WITHSCORES").query(connection).unwrap();
    for (member, score) in &due {
        let mine: bool = cmd("ZREM").arg(SET).arg(member).query(connection).unwrap();
        if mine {
            let mut add = cmd("XADD");
            add.arg(STREAM).arg("*").arg("body").arg(member).arg("duly-due").arg(*score as u64);
            add.exec(connection).unwrap();
        }
    }
    due.len()
}

pub(crate) fn plain_backlog(report: &mut Report, arguments: &Arguments) -> Cost {
    let redis = server();
    let mut connection = redis.connection();
    fill(&mut connection, arguments.plain, arguments.body);
    let watch = Watch::start(&redis);
    assert_eq!(poll(&mut connection, 2), arguments.plain);
    let cost = watch.end(arguments.plain);
    report.alone("(a) plain recipe, backlog", cost.per_second, "msg/s");
    report.alone("    Redis's processor", cost.redis_share * 100.0, "%");
    cost
}

/// What the bare script appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The message alone.
    Bare,
    /// With the fields that Duly's entries have.
    LikeOurs,
}

pub(crate) fn bare_backlog(report: &mut Report, arguments: &Arguments, entry: Entry) -> Cost {
    let (name, fields) = match entry {
        Entry::Bare => ("(b) bare script", ""),
        Entry::LikeOurs => (
            "(b') bare script, entries like Duly's",
            ", 'content-type', 'text/plain; charset=utf-8', 'duly-id', member:sub(1, 10), 'duly-due', ARGV[1], 'duly-attempt', '1'",
        ),
    };
    let script = Script::new(&format!(
        "local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
         for _, member in ipairs(due) do redis.call('XADD', KEYS[2], '*', 'body', member{fields}) end
         if #due > 0 then redis.call('ZREM', KEYS[1], unpack(due)) end
         return #due",
    ));
    let with = |batch: usize| {
        let redis = server();
        let mut connection = redis.connection();
        fill(&mut connection, arguments.backlog, arguments.body);
        let watch = Watch::start(&redis);
        let mut moved = 0;
        while moved < arguments.backlog {
            let call = script.key(SET).key(STREAM).arg(2).arg(batch).invoke::<usize>(&mut connection);
            moved += call.unwrap();
        }
        watch.end(moved)
    };
    let all = BATCHES.map(|batch| (batch, with(batch)));
    let (batch, cost) =
        all.into_iter().max_by(|(_, one), (_, other)| one.per_second.total_cmp(&other.per_second)).unwrap();
    report.alone(format!("{name}, backlog, batches of {batch}"), cost.per_second, "msg/s");
    report.alone("    Redis's processor", cost.redis_share * 100.0, "%");
    cost
}

/// Messages become due evenly, and a poll looks each second. p50 and p99 in ms.
pub(crate) fn plain_late(report: &mut Report, arguments: &Arguments) -> (f64, f64) {
    let redis = server();
    let mut connection = redis.connection();
    let (count, first) = (arguments.rate * arguments.seconds, redis_now(&redis) + 1000);
    let mut all = pipe();
    for n in 0..count {
        let due = first + n * 1000 / arguments.rate;
        all.cmd("ZADD").arg(SET).arg(due).arg(member(n as usize, arguments.body)).ignore();
    }
    all.exec(&mut connection).unwrap();
    let mut moved = 0;
    while moved < count {
        moved += poll(&mut connection, redis_now(&redis)) as u64;
        rest(Duration::from_secs(1));
    }
    let (p50, p99) = lateness(&redis);
    report.alone(format!("(a) plain recipe, {}/s, lateness p50", arguments.rate), p50, "ms");
    report.alone("    p99", p99, "ms");
    (p50, p99)
}
