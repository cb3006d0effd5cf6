//! Several nodes on one database: what depends on the database. The rest is in `testkit::store::cluster`.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use duly_core::{
    Clock, Lane, Monotonic, Now, SinkName, Sleep, Store, StoredMessage, Topic,
    store::{Claim, Claimed, Holder, Insert, StoreErrorKind},
};
use duly_stores::{SqlStore, sql::Options};

use crate::{
    bed::{id, ms, now},
    server::{Bed, both, until},
};

const LEASE: Duration = Duration::from_secs(10);
const LEASE_MS: u64 = 10_000;
const SHARDS: usize = 16;

fn options(name: &str, instance: u64) -> Options {
    Options { node: name.into(), lease: LEASE, connections: 4, ..Options::new(instance) }
}

fn sink() -> Lane {
    Lane::Sink(SinkName::parse("orders").unwrap())
}

async fn node(bed: &Bed, name: &str, instance: u64) -> SqlStore {
    bed.store_with(options(name, instance)).await
}

async fn sweep(store: &SqlStore, at: u64) {
    store.sweep(now(at), &[sink()]).await.unwrap();
}

/// A node says that it is there as often as this, at most.
const ANNOUNCED_MS: u64 = LEASE_MS / 8;

/// Lets so much time go by that all of them know of each other and have what is theirs. Returns when that is.
async fn settle_down(nodes: &[&SqlStore], from: u64) -> u64 {
    let mut at = from;
    for _ in 0..3 {
        at += ANNOUNCED_MS;
        for node in nodes {
            sweep(node, at).await;
        }
    }
    at
}

fn message(text: &str, due: u64) -> StoredMessage {
    StoredMessage::new(id(text), SinkName::parse("orders").unwrap(), Topic::parse("t").unwrap(), ms(due))
}

/// So many messages that every shard has some.
async fn fill(store: &SqlStore, from: usize, count: usize) {
    let insert = |n: usize| Insert::new(message(&format!("m{n}"), 0));
    store.insert(now(0), (from..from + count).map(insert).collect()).await.unwrap();
}

async fn claim(store: &SqlStore, at: u64) -> Claimed {
    let claim = Claim { lane: sink(), limit: 1000, lease: LEASE, holder: Holder::Process };
    store.claim(now(at), claim).await.unwrap()
}

fn shards(claimed: &Claimed) -> BTreeSet<u16> {
    claimed.messages.iter().map(|leased| leased.receipt.shard).collect()
}

both! {
    fn a_node_whose_machine_is_lost_in_the_middle_of_a_claim_holds_nobody_up(bed: shared) {
        let short = |name, instance| Options { idle_max: Duration::from_secs(1), ..options(name, instance) };
        let wire = bed.wire();
        let one = bed.store_over(&wire, short("one", 1)).await;
        let two = bed.store_with(short("two", 2)).await;
        let at = settle_down(&[&one, &two], 0).await;
        fill(&two, 0, 200).await;
        // The server has its transaction and never hears that the client is gone.
        wire.cut_on(bed.words("SET queue_no = -1", "claimed AS (UPDATE").as_bytes(), 1);
        wire.then_hold();
        let all = Claim { lane: sink(), limit: 1000, lease: LEASE, holder: Holder::Process };
        tokio::select! {
            claimed = one.claim(now(at), all) => panic!("{claimed:?}"),
            () = until("the wire breaks in the middle of the claim", || wire.needles_met() == 1) => {}
        }
        drop(one);
        let at = at + LEASE_MS + 1;
        sweep(&two, at).await;
        let mut taken = 0;
        for _ in 0..3 {
            taken += claim(&two, at).await.messages.len();
        }
        assert_eq!(taken, 200, "those that the lost node was about to claim, too");
    }

    fn a_node_that_goes_leaves_no_counter_behind(bed: shared) {
        let (one, two) = (node(&bed, "one", 1).await, node(&bed, "two", 2).await);
        let at = settle_down(&[&one, &two], 0).await;
        fill(&one, 0, 200).await;
        let counters = "SELECT COUNT(*) FROM duly_count WHERE kind = 5 AND what = 1";
        assert_ne!(bed.sql(counters), "0", "it counted its calls");
        one.close().await.unwrap();
        sweep(&two, at + ANNOUNCED_MS).await;
        assert_eq!(bed.sql(counters), "0");
    }

    fn of_two_that_come_with_one_name_at_the_same_moment_one_stays(bed: shared) {
        for round in 0..5 {
            let (one, two) = tokio::join!(node(&bed, "one", 2 * round + 1), node(&bed, "one", 2 * round + 2));
            let (of_one, of_two) = (one.sweep(now(0), &[]).await, two.sweep(now(0), &[]).await);
            assert!(of_one.is_ok() != of_two.is_ok(), "{of_one:?} {of_two:?}");
        }
    }

    fn a_node_of_another_version_is_refused_while_one_is_there(bed: shared) {
        let one = node(&bed, "one", 1).await;
        let far = (crate::bed::START + 3_600_000) * 1000;
        bed.sql(&format!(
            "INSERT INTO duly_node (instance, name, protocol, alive_until, status) VALUES (7, 'later', 9, {far}, 'who knows what')"
        ));
        let error = SqlStore::open(bed.url(), options("two", 2), now(0)).await.unwrap_err();
        assert!(error.what.contains("\"later\"") && error.what.contains("version"), "{error}");
        // Those that are there go on, and once it is gone, there is nothing to refuse.
        sweep(&one, 1).await;
        SqlStore::open(bed.url(), options("two", 2), now(3_600_001)).await.unwrap();
    }

    fn tables_of_a_newer_duly_and_another_number_of_shards_are_refused(bed: shared) {
        node(&bed, "one", 1).await.close().await.unwrap();
        let other = Options { shards: 8, ..options("one", 2) };
        let error = SqlStore::open(bed.url(), other, now(0)).await.unwrap_err();
        assert!(error.what.contains("16 shards") && error.what.contains("set shards to 16"), "{error}");
        bed.sql("UPDATE duly_store SET value = '99' WHERE name = 'step'");
        let error = SqlStore::open(bed.url(), options("one", 3), now(0)).await.unwrap_err();
        assert!(error.what.contains("newer Duly"), "{error}");
    }

    fn tables_of_an_older_layout_are_refused_and_left_as_they_are(bed: shared) {
        let store = node(&bed, "one", 1).await;
        fill(&store, 0, 3).await;
        store.close().await.unwrap();
        // As they were before the table of the shard leases got its name.
        bed.sql("ALTER TABLE duly_shard_lease RENAME TO duly_right");
        bed.sql("UPDATE duly_store SET value = '2' WHERE name = 'step'");
        let error = SqlStore::open(bed.url(), options("one", 2), now(0)).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(error.what.contains("older Duly (layout 2") && error.what.contains("empty database"), "{error}");
        assert_eq!(bed.sql("SELECT COUNT(*) FROM delay_message"), "3", "nothing is changed");
        assert_eq!(bed.sql("SELECT COUNT(*) FROM duly_right WHERE lane_no < 0"), "0", "the table is still there");
        assert_eq!(bed.sql("SELECT value FROM duly_store WHERE name = 'step'"), "2");
    }

    fn many_that_start_on_an_empty_database_make_one_store(bed: shared) {
        let starts: Vec<_> = (1..=6)
            .map(|n| {
                let url = bed.url().to_owned();
                tokio::spawn(async move { SqlStore::open(&url, options(&format!("n{n}"), n), now(0)).await.unwrap() })
            })
            .collect();
        let mut nodes = Vec::new();
        for start in starts {
            nodes.push(start.await.unwrap());
        }
        assert_eq!(nodes[0].nodes().await.unwrap().len(), 6);
        assert_eq!(bed.sql("SELECT COUNT(*) FROM duly_store WHERE name = 'generation'"), "1");
    }

    fn time_is_that_of_the_server_whatever_the_machine_says(bed: shared) {
        let machine = Arc::new(Ahead::new());
        let (store, clock) = SqlStore::join(bed.url(), options("one", 1), machine).await.unwrap();
        let seconds: u64 = bed
            .sql(bed.words("SELECT UNIX_TIMESTAMP()", "SELECT EXTRACT(EPOCH FROM now())::bigint"))
            .parse()
            .unwrap();
        let now = clock.now();
        assert!(now.wall().as_millis().abs_diff(seconds * 1000) < 60_000, "an hour off is more than that");
        assert!(now.latest_micros() >= now.wall_micros());
        store.sweep(now, &[]).await.unwrap();
        store.sweep(clock.now(), &[]).await.unwrap();
        let skew = store.nodes().await.unwrap()[0].clock_skew_us;
        assert!(skew.abs_diff(3_600_000_000) < 60_000_000, "{skew}");
        assert!(store.metrics().clock_skew_us.is_some());
    }
}

#[test]
fn in_postgresql_a_message_accepted_by_one_node_wakes_the_one_that_delivers_it() {
    if !testkit::servers::postgres::installed() {
        return;
    }
    let bed = Bed::new(crate::server::postgres::shared());
    testkit::block_on(async {
        let (one, two) = (node(&bed, "one", 1).await, Arc::new(node(&bed, "two", 2).await));
        let at = settle_down(&[&one, &two], 0).await;
        fill(&one, 0, 200).await;
        let theirs = shards(&claim(&two, at).await);
        assert_eq!(theirs.len(), SHARDS / 2);
        let listening = two.clone();
        let received = tokio::spawn(async move { listening.hint().await });
        let listens = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        until("it listens", || bed.sql(listens) == "1").await;
        // Ids that hash into shards of the first are not told to the second: only the last one is.
        for text in (0..).map(|n| format!("new{n}")) {
            let message = message(&text, at + 5);
            let is_theirs = theirs.contains(&((message.id.hash64() % SHARDS as u64) as u16));
            one.insert(now(at), vec![Insert::new(message)]).await.unwrap();
            if is_theirs {
                break;
            }
        }
        let hint = received.await.unwrap();
        assert_eq!((hint.lane, hint.due), (sink(), ms(at + 5)));
    });
}

/// A machine whose wall clock is an hour ahead.
struct Ahead(Instant);

impl Ahead {
    #[expect(clippy::disallowed_methods, reason = "a clock of this test's own")]
    fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Ahead {
    #[expect(clippy::disallowed_methods, reason = "a clock of this test's own")]
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        Now::new(wall + 3_600_000_000, Monotonic::from_micros(self.0.elapsed().as_micros() as u64))
    }

    fn sleep_until(&self, _: Monotonic) -> Sleep {
        Box::pin(std::future::pending())
    }
}
