//! One holder at a time, and tokens that only grow.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::{Child, Command, Stdio},
    time::Duration,
};

use duly_streams::{Error, Released, Settings, Streams};
use rustix::process::{Pid, Signal, kill_process};
use testkit::servers::redis::{Cluster, Redis, Sentinels, installed};

use crate::{SOON, connect, wait_until};

/// Short, so that it is soon over.
const LEASE: Duration = Duration::from_millis(400);

/// Nobody has the lock: takes it.
async fn take(streams: &Streams, name: &str) -> duly_streams::LockGuard {
    streams.lock(name).lease(LEASE).lock(SOON).await.unwrap().expect("the lock within the time")
}

async fn one_holds_it_and_others_skip_or_wait(one: Streams, other: Streams) {
    let (mine, theirs) = (one.lock("report"), other.lock("report"));
    let guard = mine.try_lock().await.unwrap().unwrap();
    assert!(guard.is_held());
    assert!(theirs.try_lock().await.unwrap().is_none(), "another has it");
    assert!(mine.try_lock().await.unwrap().is_none(), "not reentrant");
    assert!(theirs.lock(Duration::from_millis(50)).await.unwrap().is_none(), "not within the time");
    assert!(other.lock("mail").try_lock().await.unwrap().is_some(), "another lock");
    let first = guard.token();
    let waiting = tokio::spawn(async move { theirs.lock(SOON).await.unwrap().unwrap() });
    assert_eq!(guard.release().await.unwrap(), Released::Done);
    let guard = waiting.await.unwrap();
    assert!(guard.token() > first);
    drop(guard);
    // Given back in the background, long before its lease of ten seconds would end.
    let last = one.lock("report").lock(Duration::from_secs(9)).await.unwrap();
    assert!(last.is_some());
    one.shutdown().await.unwrap();
    assert!(matches!(mine.try_lock().await, Err(Error::Closed)));
    other.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_holds_a_lock_and_others_skip_or_wait() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let both = (connect(&redis, Settings::default()).await, connect(&redis, Settings::default()).await);
    one_holds_it_and_others_skip_or_wait(both.0, both.1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_holds_a_lock_on_a_cluster_and_others_skip_or_wait() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let (one, other) = (Streams::connect(&cluster.url()).await, Streams::connect(&cluster.url()).await);
    one_holds_it_and_others_skip_or_wait(one.unwrap(), other.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_renewed_as_long_as_its_guard_lives() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let guard = take(&streams, "report").await;
    // Another who waits for several leases does not get it.
    assert!(streams.lock("report").lock(LEASE * 5).await.unwrap().is_none());
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Released::Done);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_a_lock_is_told_and_changes_nothing_for_whoever_has_it() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let old = take(&streams, "report").await;
    redis.run::<()>(&["DEL", "duly-streams:lock:{report}"]);
    let new = take(&streams, "report").await;
    tokio::time::timeout(SOON, old.lost()).await.unwrap();
    assert!(!old.is_held() && new.is_held());
    assert_eq!(old.release().await.unwrap(), Released::Lost);
    assert!(streams.lock("report").try_lock().await.unwrap().is_none(), "the new one still has it");
    assert_eq!(new.release().await.unwrap(), Released::Done);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_cut_off_from_redis_knows_it_before_the_lease_ends_there() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let guard = take(&streams, "report").await;
    redis.pause();
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(!guard.is_held(), "and nobody can have got it yet, as Redis does nothing");
    redis.cont();
    // A renewal that was on its way when Redis stopped may have come through; the lock stays lost.
    let next = take(&streams, "report").await;
    assert!(!guard.is_held() && next.token() > guard.token());
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_although_redis_forgot_them_or_its_clock_went_back() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let first = take(&streams, "report").await.token();
    redis.run::<()>(&["DEL", "duly-streams:lock:{report}", "duly-streams:lock:{report}:token"]);
    let second = take(&streams, "report").await.token();
    assert!(second > first);
    // As if the last token had been given by a clock that was an hour ahead.
    let ahead = second + 3_600_000_000;
    wait_until("it was given back", || !redis.run::<bool>(&["EXISTS", "duly-streams:lock:{report}"]));
    redis.run::<()>(&["SET", "duly-streams:lock:{report}:token", &ahead.to_string()]);
    assert_eq!(take(&streams, "report").await.token(), ahead + 1);
    let kept: i64 = redis.run(&["PTTL", "duly-streams:lock:{report}:token"]);
    assert!(kept > 24 * 3_600_000, "longer than until the clock is past it, {kept}");
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_to_be_had_after_a_failover_with_a_greater_token() {
    if !installed() {
        return;
    }
    let sentinels = Sentinels::start();
    let streams = Streams::connect(&sentinels.url()).await.unwrap();
    let first = take(&streams, "report").await;
    tokio::task::block_in_place(|| sentinels.fail_over());
    assert!(take(&streams, "report").await.token() > first.token());
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_meant_is_refused() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    for lock in [streams.lock(""), streams.lock("a{b}"), streams.lock("a").lease(Duration::from_millis(99))] {
        assert!(matches!(lock.try_lock().await, Err(Error::Invalid(_))), "{lock:?}");
    }
    streams.shutdown().await.unwrap();
}

const URL: &str = "DULY_STREAMS_TEST_LOCK_URL";

/// The protected resource: keeps the greatest token that it has seen, and refuses smaller ones. Writes down who did what.
const WRITE: &str = "
    if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or '0') then
      redis.call('RPUSH', KEYS[3], ARGV[1])
      return 0
    end
    redis.call('SET', KEYS[1], ARGV[1])
    redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])
    return 1";

/// Takes the lock and writes, again and again. It does not look whether it still holds it: that is what makes it dangerous.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_process_that_wants_the_lock() {
    let Some(url) = std::env::var_os(URL).and_then(|url| url.into_string().ok()) else { return };
    let settings = Settings { enabled: false, ..Settings::default() };
    let streams = Streams::connect_with(&url, settings).await.unwrap();
    let mut resource = redis::Client::open(url).unwrap().get_connection().unwrap();
    let write = redis::Script::new(WRITE);
    loop {
        let guard = take(&streams, "resource").await;
        redis::cmd("RPUSH").arg("granted").arg(guard.token()).exec(&mut resource).unwrap();
        for _ in 0..50 {
            let mut call = write.key("greatest");
            call.key("accepted").key("refused").arg(guard.token()).arg(std::process::id());
            if call.invoke::<u8>(&mut resource).unwrap() == 0 {
                break;
            }
        }
        let _ = guard.release().await;
        // There is no queue: let another be next.
        let me = std::process::id();
        wait_until("another acts", || {
            let last: Option<String> =
                redis::cmd("LINDEX").arg("accepted").arg(-1).query(&mut resource).unwrap();
            last.is_none_or(|last| last.split_once(' ').unwrap().1 != me.to_string())
        });
    }
}

/// Holds the lock, and says again and again whether it is certain of that.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_process_that_says_whether_it_holds_the_lock() {
    let Some(url) = std::env::var_os(URL).and_then(|url| url.into_string().ok()) else { return };
    let settings = Settings { enabled: false, ..Settings::default() };
    let streams = Streams::connect_with(&url, settings).await.unwrap();
    let mut said = redis::Client::open(url).unwrap().get_connection().unwrap();
    let guard = take(&streams, "report").await;
    loop {
        let word = if guard.is_held() { "held" } else { "lost" };
        redis::cmd("INCR").arg(word).exec(&mut said).unwrap();
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the test `role` of this program in a process of its own.
fn process(role: &str, redis: &Redis) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role]).env(URL, redis.url());
    Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_was_paused_past_its_lease_knows_it_at_once() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let holder = process("lock::as_a_process_that_says_whether_it_holds_the_lock", &redis);
    let said = |word: &str| redis.run::<Option<u64>>(&["GET", word]).unwrap_or_default();
    wait_until("it holds the lock", || said("held") > 0);
    kill_process(Pid::from_child(&holder.0), Signal::STOP).unwrap();
    let guard = take(&streams, "report").await;
    let before = said("held");
    kill_process(Pid::from_child(&holder.0), Signal::CONT).unwrap();
    wait_until("it has lost the lock", || said("lost") > 0);
    // The one that it was about to say when it was paused.
    assert!(said("held") <= before + 1, "it was certain of a lock that another had");
    assert!(guard.is_held());
    drop(holder);
    streams.shutdown().await.unwrap();
}

/// What the resource accepted: token and process, in order.
fn accepted(redis: &Redis) -> Vec<(u64, u32)> {
    let lines: Vec<String> = redis.run(&["LRANGE", "accepted", "0", "-1"]);
    let read = |line: &String| {
        let (token, process) = line.split_once(' ').unwrap();
        (token.parse().unwrap(), process.parse().unwrap())
    };
    lines.iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_sixteen_processes_with_pauses_longer_than_the_lease_no_two_act_at_once() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let start = || process("lock::as_a_process_that_wants_the_lock", &redis);
    let processes: BTreeMap<u32, Killed> =
        (0..16).map(|_| start()).map(|process| (process.0.id(), process)).collect();
    let writer = || {
        let last: String = redis.run(&["LINDEX", "accepted", "-1"]);
        last.split_once(' ').unwrap().1.parse::<u32>().unwrap()
    };
    let signal =
        |process: u32, signal| kill_process(Pid::from_child(&processes[&process].0), signal).unwrap();
    let refused = || redis.run::<usize>(&["LLEN", "refused"]);
    let everybody = || accepted(&redis).iter().map(|(_, process)| *process).collect::<BTreeSet<_>>().len();
    tokio::task::block_in_place(|| {
        let soon = SOON * 4;
        testkit::servers::wait_until("all have held it", soon, || everybody() == 16);
        let mut pauses = 0;
        while pauses < 20 || refused() < 5 {
            assert!(pauses < 200, "nobody was caught in the middle of its work");
            let holder = writer();
            signal(holder, Signal::STOP);
            // It is longer than the lease if another gets the lock; then it goes on where it was.
            testkit::servers::wait_until("another acts", soon, || writer() != holder);
            signal(holder, Signal::CONT);
            pauses += 1;
        }
        let count = || redis.run::<usize>(&["LLEN", "accepted"]);
        let before = count();
        testkit::servers::wait_until("they go on", soon, || count() > before + 200);
        println!("{pauses} pauses, {} writes refused, {} accepted", refused(), count());
    });
    drop(processes);
    let accepted = accepted(&redis);
    assert!(accepted.is_sorted_by_key(|(token, _)| *token), "an older holder acted after a newer one");
    let mut holder_of = BTreeMap::new();
    for (token, process) in accepted {
        assert_eq!(*holder_of.entry(token).or_insert(process), process, "two had the token {token}");
    }
    let granted: Vec<u64> = redis.run(&["LRANGE", "granted", "0", "-1"]);
    assert_eq!(granted.iter().collect::<BTreeSet<_>>().len(), granted.len(), "a token was given twice");
}
