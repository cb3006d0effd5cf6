//! How the database finds the rows of a claim when a million wait: by an index, in the order of the index.

use std::collections::BTreeMap;

use duly_core::{Attempt, Outcome, Store, store::Settlement};
use duly_stores::SqlStore;

use crate::{
    bed::{claim, deliver, id, insert, lane, message, messages, ms, now, settle},
    server::{Bed, both},
};

/// So many wait for later.
const WAITING: usize = 1_000_000;
/// So many have ended and are kept.
const ENDED: usize = 20_000;
/// A sort of what one call took anyway costs nothing; a sort of what waits would.
const SORTED_MAX: usize = 1_000;
/// Long after everything that the test does.
const LATER: u64 = 30 * 24 * 3600 * 1000;

both! {
    fn no_statement_around_a_claim_looks_at_a_million_rows(bed: own) {
        let store = bed.store(1).await;
        insert(&store, vec![message("first", LATER)]).await.unwrap();
        store.close().await.unwrap();
        fill(&bed);
        let plans = if bed.is_mysql() {
            let log = GeneralLog::on(&bed);
            everything(&bed).await;
            explained(&bed, &log.statements())
        } else {
            let before = auto_explain(&bed);
            everything(&bed).await;
            from_log(&bed.log()[before..])
        };
        for word in ["SELECT", "UPDATE"] {
            assert!(plans.keys().any(|statement| statement.contains(word)), "no {word} among {plans:?}");
        }
        let walks = |(statement, plan): &(&String, &Vec<String>)| {
            statement.contains("GROUP BY queue_no ORDER") && !plan.iter().any(|step| step.contains("for group-by"))
        };
        let walked: Vec<_> = plans.iter().filter(walks).collect();
        assert!(walked.is_empty(), "every entry is looked at: {walked:#?}");
        let slow: Vec<_> = plans.iter().filter(|(_, plan)| is_slow(plan)).collect();
        assert!(slow.is_empty(), "{slow:#?}");
    }
}

/// All that a node does over and over, and what people do to a single message.
async fn everything(bed: &Bed) {
    let store: SqlStore = bed.store(2).await;
    insert(&store, messages(250)).await.unwrap();
    for at in 1..=2 {
        let claimed = claim(&store, at, 100).await.unwrap().messages;
        assert_eq!(claimed.len(), 100);
        deliver(&store, at, &claimed).await.unwrap();
    }
    let rest = claim(&store, 3, 100).await.unwrap().messages;
    assert_eq!(rest.len(), 50);
    let attempt = Attempt::new(ms(3), Outcome::Unreachable, "nobody there");
    settle(&store, 3, &rest, Settlement::Retry { at: ms(60_000), attempt }).await.unwrap();
    assert_eq!(claim(&store, 4, 100).await.unwrap().messages.len(), 0);
    store.reschedule(now(5), &[(rest[0].message.id.clone(), ms(5))]).await.unwrap();
    store.cancel(now(5), &[rest[1].message.id.clone(), id("nobody")]).await.unwrap();
    for round in 0..3 {
        store.sweep(now(6 + round * 1000), &[lane("work")]).await.unwrap();
    }
    // So many that their queues are not looked at one by one.
    let many: Vec<_> = (0..150).map(|n| lane(&format!("t{n}"))).chain([lane("work")]).collect();
    assert_eq!(store.sweep(now(9000), &many).await.unwrap().next.len(), 1);
    store.close().await.unwrap();
}

fn fill(bed: &Bed) {
    let numbers = |count: usize| {
        if bed.is_mysql() {
            format!("seq_1_to_{count}")
        } else {
            format!("generate_series(1, {count}) AS seq")
        }
    };
    let name = |word: &str| {
        if bed.is_mysql() {
            format!("CONCAT('{word}-', seq)")
        } else {
            format!("'{word}-' || CAST(seq AS TEXT)")
        }
    };
    let due = ms(LATER).as_millis();
    let (waiting, ended) = (numbers(WAITING), numbers(ENDED));
    let columns = "message_id, sink, topic, content_kind, deliver_time_ms, priority, ready_time_ms, content_hash, lane_no, \
                   queue_no, queue_at, queue_rank";
    bed.sql(&format!(
        "INSERT INTO delay_message ({columns}) SELECT {}, 'queue', 'work', 'text', {due} + seq, 4, {due} + seq, seq, lane_no, \
         lane_no * 256 + seq % 16, ({due} + seq) * 1000, 5 FROM {waiting} CROSS JOIN duly_lane",
        name("fill")
    ));
    let at = ms(0).as_millis();
    bed.sql(&format!(
        "INSERT INTO delay_message ({columns}, status, end_time_ms) SELECT {}, 'queue', 'work', 'text', {at}, 4, {at}, seq, \
         lane_no, -2, {at} * 1000 + seq, 0, 'DELIVERED', {at} FROM {ended} CROSS JOIN duly_lane",
        name("ended")
    ));
    bed.sql(bed.words("ANALYZE TABLE delay_message", "VACUUM ANALYZE delay_message"));
}

/// Notes every statement, with its values, while it is there.
struct GeneralLog<'b>(&'b Bed);

impl<'b> GeneralLog<'b> {
    fn on(bed: &'b Bed) -> Self {
        bed.sql("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = ON");
        Self(bed)
    }

    /// What clients ran: alone, and several together.
    fn statements(self) -> Vec<String> {
        self.0.sql("SET GLOBAL general_log = OFF");
        let select = "SELECT DISTINCT argument FROM mysql.general_log WHERE command_type IN ('Execute', 'Query') AND \
                      argument LIKE '%delay_message%'";
        let answer = self.0.sql(select);
        let all = answer.lines().flat_map(|line| line.split("; "));
        let of_messages =
            |statement: &&str| statement.contains("delay_message") && !statement.starts_with("INSERT");
        all.filter(of_messages).map(str::to_owned).collect()
    }
}

/// The plan of each statement, one line for each table in it.
fn explained(bed: &Bed, statements: &[String]) -> BTreeMap<String, Vec<String>> {
    let plan = |statement: &String| {
        let lines = bed.sql(&format!("EXPLAIN {statement}"));
        let of_messages = lines.lines().filter(|line| line.contains("delay_message")).map(str::to_owned);
        (statement.clone(), of_messages.collect())
    };
    statements.iter().map(plan).collect()
}

/// Makes the server write the plan of every statement of new connections into its log. Returns how long the log is.
fn auto_explain(bed: &Bed) -> usize {
    for (name, value) in [
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_timing", "off"),
    ] {
        bed.sql(&format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {name} = ''{value}''', current_database()); END $$"
        ));
    }
    bed.log().len()
}

/// Plans as PostgreSQL writes them: the statement, then a line for each step.
fn from_log(log: &str) -> BTreeMap<String, Vec<String>> {
    let mut plans = BTreeMap::new();
    for entry in log.split("plan:").skip(1) {
        let mut lines = entry.lines().map(str::trim).filter(|line| !line.is_empty());
        let Some(statement) = lines.next().and_then(|line| line.strip_prefix("Query Text: ")) else {
            continue;
        };
        let steps = lines.take_while(|line| !line.contains("LOG:")).map(str::to_owned).collect();
        if statement.contains("delay_message") && !statement.starts_with("INSERT") {
            plans.insert(statement.to_owned(), steps);
        }
    }
    plans
}

/// Whether a step of a plan looks at all rows, or sorts more than was taken.
fn is_slow(plan: &[String]) -> bool {
    plan.iter().any(|step| {
        let mut columns = step.split('\t').skip(3);
        let scans_all = matches!(columns.next(), Some("ALL" | "index")) || step.contains("filesort");
        scans_all || step.contains("Seq Scan on delay_message") || sorted(step) > SORTED_MAX
    })
}

/// How many rows a step of PostgreSQL's has sorted.
fn sorted(step: &str) -> usize {
    let Some((_, actual)) = step.split_once("(actual rows=").filter(|_| step.contains("Sort  (")) else {
        return 0;
    };
    actual.split(' ').next().and_then(|rows| rows.parse().ok()).unwrap_or(usize::MAX)
}
