use super::*;
use crate::wire::AlertValues;
use duly::Topic;

/// A watch, and the seconds that have passed for it.
struct Bench {
    watch: Watch,
    second: u64,
}

impl Bench {
    fn new(rules: AlertRules) -> Self {
        Self { watch: Watch::new(rules, [SinkName::parse("orders").unwrap()]), second: 0 }
    }

    /// Looks `after` seconds later: the names of what is raised (`+`) and cleared (`-`).
    fn evaluate(&mut self, after: u64, seen: &Measurements) -> Vec<String> {
        self.second += after;
        let micros = self.second * 1_000_000;
        let now = Now::new(1_700_000_000_000_000 + micros, Monotonic::from_micros(micros));
        let sign = |state| if state == AlertState::Raised { '+' } else { '-' };
        let scope = |alert: &Alert| alert.scope.as_deref().map(|s| format!(":{s}")).unwrap_or_default();
        let reported = self.watch.evaluate(now, seen);
        reported.iter().map(|alert| format!("{}{}{}", sign(alert.state), alert.name, scope(alert))).collect()
    }
}

fn rules() -> AlertRules {
    let all = Thresholds {
        overdue: Some(Duration::from_secs(10)),
        queue_length: Some(1_000),
        lateness_p99: Some(Duration::from_secs(5)),
        failure_rate: Some(0.1),
        dead_letters: Some(5),
    };
    AlertRules { all, ..AlertRules::default() }
}

fn with_topic(own: Thresholds) -> AlertRules {
    AlertRules { topics: BTreeMap::from([("order".to_owned(), own)]), ..rules() }
}

fn queue(topic: &str, pending: u64, overdue_s: u64) -> LaneMeasurements {
    let lane = Lane::Queue(Topic::parse(topic).unwrap());
    LaneMeasurements { lane, paused: false, pending, dead: 0, overdue: Duration::from_secs(overdue_s) }
}

fn sink(name: &str, pending: u64) -> LaneMeasurements {
    let lane = Lane::Sink(SinkName::parse(name).unwrap());
    LaneMeasurements { lane, paused: false, pending, dead: 0, overdue: Duration::ZERO }
}

fn lanes(lanes: impl IntoIterator<Item = LaneMeasurements>) -> Measurements {
    Measurements { lanes: Some(lanes.into_iter().collect()), ..Measurements::default() }
}

fn attempts(count: u64, failed: u64, late_ms: &[u64]) -> AttemptCounts {
    let histogram = duly::Histogram::default();
    late_ms.iter().for_each(|ms| histogram.record(ms * 1_000));
    AttemptCounts { count, failed, lateness: histogram.snapshot() }
}

#[test]
fn an_alert_is_raised_at_once_and_once() {
    let mut bench = Bench::new(rules());
    assert_eq!(bench.evaluate(0, &lanes([queue("order", 1, 10)])), [""; 0], "at the limit is not beyond it");
    assert_eq!(bench.evaluate(1, &lanes([queue("order", 1, 11)])), ["+overdue"]);
    assert_eq!(bench.evaluate(1, &lanes([queue("order", 1, 12)])), [""; 0]);
    let on = bench.watch.on();
    assert_eq!((on.len(), on[0].since.as_str()), (1, "2023-11-14T22:13:21.000Z"));
    assert!(on[0].detail.starts_with("queue/order: ") && on[0].detail.contains("12.0 s"), "{}", on[0].detail);
}

#[test]
fn an_alert_is_cleared_after_calm_and_not_before() {
    let mut bench = Bench::new(rules());
    let (bad, good) = (lanes([queue("order", 1, 60)]), lanes([]));
    assert_eq!(bench.evaluate(0, &bad), ["+overdue"]);
    assert_eq!(bench.evaluate(1, &good), [""; 0]);
    assert_eq!(bench.evaluate(29, &good), [""; 0]);
    assert_eq!(bench.evaluate(1, &bad), [""; 0], "what comes back was never gone");
    assert_eq!(bench.evaluate(1, &good), [""; 0]);
    assert_eq!(bench.evaluate(29, &good), [""; 0]);
    assert_eq!(bench.evaluate(1, &good), ["-overdue"]);
    assert_eq!(bench.watch.on().len(), 0);
    assert_eq!(bench.evaluate(1, &bad), ["+overdue"]);
}

#[test]
fn a_paused_lane_raises_no_overdue_alert() {
    let mut bench = Bench::new(rules());
    let paused = LaneMeasurements { paused: true, ..queue("order", 1, 3_600) };
    assert_eq!(bench.evaluate(0, &lanes([paused.clone()])), [""; 0]);
    assert_eq!(bench.evaluate(0, &lanes([paused, queue("mail", 1, 11)])), ["+overdue"]);
}

#[test]
fn pending_messages_of_all_lanes_count_together() {
    let mut bench = Bench::new(rules());
    assert_eq!(bench.evaluate(0, &lanes([queue("order", 600, 0), sink("orders", 400)])), [""; 0]);
    assert_eq!(bench.evaluate(0, &lanes([queue("order", 600, 0), sink("orders", 401)])), ["+queue_length"]);
}

#[test]
fn lateness_and_failures_of_the_last_minute_are_judged() {
    let mut bench = Bench::new(rules());
    let late = |late: &[u64]| Measurements { attempts: attempts(0, 0, late), ..Measurements::default() };
    assert_eq!(bench.evaluate(0, &late(&[4_000; 100])), [""; 0]);
    assert_eq!(
        bench.evaluate(0, &late(&[[1; 99].as_slice(), &[60_000]].concat())),
        [""; 0],
        "one in a hundred may"
    );
    assert_eq!(bench.evaluate(0, &late(&[[1; 97].as_slice(), &[60_000; 3]].concat())), ["+lateness_p99"]);

    let failing =
        |count, failed| Measurements { attempts: attempts(count, failed, &[]), ..Measurements::default() };
    assert_eq!(bench.evaluate(0, &failing(100, 10)), [""; 0]);
    assert_eq!(bench.evaluate(0, &failing(19, 19)), [""; 0], "too few to say");
    assert_eq!(bench.evaluate(0, &failing(20, 3)), ["+failure_rate"]);
}

#[test]
fn a_topic_with_rules_of_its_own_is_judged_by_them_alone() {
    let own = Thresholds { overdue: Some(Duration::from_secs(60)), ..Thresholds::default() };
    let mut bench = Bench::new(with_topic(own));
    assert_eq!(
        bench.evaluate(0, &lanes([queue("order", 5_000, 59)])),
        [""; 0],
        "its own limit is higher, or none"
    );
    assert_eq!(bench.evaluate(0, &lanes([queue("order", 1, 61)])), ["+overdue:order"]);
    assert_eq!(
        bench.evaluate(0, &lanes([queue("mail", 1, 11)])),
        ["+overdue"],
        "the others have the common one"
    );
}

#[test]
fn the_attempts_of_a_topic_with_rules_do_not_count_for_all() {
    let own = Thresholds { failure_rate: Some(0.5), ..Thresholds::default() };
    let mut bench = Bench::new(with_topic(own));
    let seen = |all, order| Measurements {
        attempts: all,
        topics: BTreeMap::from([("order".to_owned(), order)]),
        ..Measurements::default()
    };
    assert_eq!(bench.evaluate(0, &seen(attempts(200, 40, &[]), attempts(100, 40, &[]))), [""; 0]);
    assert_eq!(
        bench.evaluate(0, &seen(attempts(200, 60, &[]), attempts(100, 60, &[]))),
        ["+failure_rate:order"]
    );
    assert_eq!(bench.evaluate(0, &seen(attempts(200, 80, &[]), attempts(100, 60, &[]))), ["+failure_rate"]);
}

#[test]
fn messages_for_a_sink_that_left_the_configuration_are_an_orphan_and_not_overdue() {
    let mut bench = Bench::new(rules());
    let orphan = LaneMeasurements { overdue: Duration::from_secs(3_600), ..sink("gone", 7) };
    assert_eq!(bench.evaluate(0, &lanes([orphan, sink("orders", 7)])), ["+orphan:gone"]);
    assert!(bench.watch.any_on(AlertName::Orphan) && !bench.watch.is_on(AlertName::Orphan, None));
    assert_eq!(bench.evaluate(0, &lanes([sink("gone", 0)])), [""; 0]);
    assert_eq!(bench.evaluate(30, &lanes([sink("gone", 0)])), ["-orphan:gone"]);
}

#[test]
fn an_unbalanced_ledger_is_an_alert() {
    let mut bench = Bench::new(AlertRules::default());
    let totals = |accepted| Totals::ever(accepted, 0, 0, 0).now(2, 0, 0);
    assert_eq!(
        bench.evaluate(0, &Measurements { totals: Some(totals(2)), ..Measurements::default() }),
        [""; 0]
    );
    assert_eq!(
        bench.evaluate(0, &Measurements { totals: Some(totals(3)), ..Measurements::default() }),
        ["+ledger"]
    );
}

#[test]
fn without_rules_nothing_else_is_told() {
    let mut bench = Bench::new(AlertRules::default());
    let seen = Measurements {
        attempts: attempts(100, 100, &[60_000; 100]),
        ..lanes([queue("order", 1_000_000, 3_600)])
    };
    assert_eq!(bench.evaluate(0, &seen), [""; 0]);
}

#[test]
fn a_node_that_is_not_ready_is_told_and_what_the_store_does_not_say_stands() {
    let mut bench = Bench::new(rules());
    let late = lanes([queue("order", 1, 60)]);
    assert_eq!(bench.evaluate(0, &late), ["+overdue"]);
    let failing =
        |part, why: &str| Measurements { failing: vec![(part, why.to_owned())], ..Measurements::default() };
    let damaged = failing("claiming", "claims of queue/order fail: damaged");
    assert_eq!(bench.evaluate(1, &damaged), [""; 0], "one look may see a moment that is over");
    assert_eq!(bench.evaluate(1, &damaged), ["+not_ready"]);
    assert_eq!(
        bench.evaluate(60, &failing("accepting", "the disk is full")),
        [""; 0],
        "overdue as before, for all we know"
    );
    let on = bench.watch.on();
    assert_eq!(on.len(), 2);
    assert!(on[1].detail.ends_with("now: accepting: the disk is full"), "{}", on[1].detail);
    // The rates of this process are known without the store.
    let attempts =
        Measurements { attempts: attempts(100, 50, &[]), ..failing("accepting", "the disk is full") };
    assert_eq!(bench.evaluate(1, &attempts), ["+failure_rate"]);
    assert_eq!(bench.evaluate(1, &lanes([])), [""; 0]);
    assert_eq!(bench.evaluate(30, &lanes([])), ["-overdue", "-failure_rate", "-not_ready"]);
}

#[test]
fn a_node_that_is_degraded_is_told_apart_from_one_that_is_not_ready() {
    let mut bench = Bench::new(AlertRules::default());
    let degraded =
        Measurements { degraded: Some("claims of sink/kafka fail: damaged".to_owned()), ..lanes([]) };
    assert_eq!(bench.evaluate(0, &degraded), [""; 0], "one look may see a moment that is over");
    assert_eq!(bench.evaluate(1, &degraded), ["+degraded"]);
    assert_eq!(bench.evaluate(1, &degraded), [""; 0]);
    assert!(bench.watch.on()[0].detail.ends_with("claims of sink/kafka fail: damaged"));
    assert_eq!(bench.evaluate(1, &lanes([])), [""; 0]);
    assert_eq!(bench.evaluate(30, &lanes([])), ["-degraded"]);
}

#[test]
fn a_single_failure_now_and_then_is_no_alert() {
    let mut bench = Bench::new(rules());
    let failing =
        Measurements { failing: vec![("claiming", "taken back".to_owned())], ..Measurements::default() };
    for _ in 0..10 {
        assert_eq!(bench.evaluate(2, &failing), [""; 0]);
        assert_eq!(bench.evaluate(2, &Measurements::default()), [""; 0]);
    }
    bench.evaluate(2, &failing);
    assert_eq!(bench.evaluate(2, &failing), ["+not_ready"]);
    // Once it is on, every failure keeps it on.
    assert_eq!(bench.evaluate(29, &Measurements::default()), [""; 0]);
    assert_eq!(bench.evaluate(2, &failing), [""; 0]);
    assert_eq!(bench.evaluate(2, &Measurements::default()), [""; 0]);
    assert_eq!(bench.evaluate(29, &Measurements::default()), [""; 0]);
    assert_eq!(bench.evaluate(1, &Measurements::default()), ["-not_ready"]);
}

#[test]
fn dead_letters_are_told_until_they_are_replayed_or_purged() {
    let own = Thresholds { dead_letters: Some(0), ..Thresholds::default() };
    let mut bench = Bench::new(with_topic(own));
    let dead = |topic: &str, dead| LaneMeasurements { dead, ..queue(topic, 0, 0) };
    assert_eq!(bench.evaluate(0, &lanes([dead("mail", 3), dead("sms", 2)])), [""; 0], "at the limit");
    assert_eq!(bench.evaluate(0, &lanes([dead("mail", 3), dead("sms", 3)])), ["+dead_letters"]);
    assert_eq!(bench.evaluate(0, &lanes([dead("mail", 6), dead("order", 1)])), ["+dead_letters:order"]);
    assert_eq!(bench.evaluate(1, &lanes([])), [""; 0]);
    assert_eq!(bench.evaluate(30, &lanes([])), ["-dead_letters", "-dead_letters:order"]);
}

#[test]
fn dead_letters_are_told_again_when_they_have_doubled() {
    let all = Thresholds { dead_letters: Some(0), ..Thresholds::default() };
    let mut bench = Bench::new(AlertRules { all, ..AlertRules::default() });
    let dead = |dead| lanes([LaneMeasurements { dead, ..queue("mail", 0, 0) }]);
    for (count, reported) in [(1, 1), (1, 0), (2, 1), (3, 0), (4, 1), (7, 0), (100, 1), (199, 0)] {
        assert_eq!(bench.evaluate(1, &dead(count)), vec!["+dead_letters"; reported], "{count}");
    }
    let on = bench.watch.on();
    assert!(on.len() == 1 && on[0].detail.starts_with("199 messages"), "{on:?}");
    assert_eq!(on[0].since, "2023-11-14T22:13:21.000Z", "since the first of them");
    // Of those that were replayed or purged somebody knows.
    for (count, reported) in [(10, 0), (19, 0), (20, 1)] {
        assert_eq!(bench.evaluate(1, &dead(count)), vec!["+dead_letters"; reported], "{count}");
    }
    // Other alerts are told once, however much worse it gets.
    let mut bench = Bench::new(rules());
    assert_eq!(bench.evaluate(1, &lanes([queue("mail", 1_001, 0)])), ["+queue_length"]);
    assert_eq!(bench.evaluate(1, &lanes([queue("mail", 100_000, 0)])), [""; 0]);
}

#[test]
fn dead_letters_of_a_sink_that_left_the_configuration_count() {
    let mut bench = Bench::new(rules());
    let dead = |name, dead| LaneMeasurements { dead, ..sink(name, 0) };
    assert_eq!(bench.evaluate(0, &lanes([dead("gone", 2), dead("orders", 3)])), [""; 0], "at the limit");
    assert_eq!(bench.evaluate(0, &lanes([dead("gone", 3), dead("orders", 3)])), ["+dead_letters"]);
}

/// The text between these two, of a line of words.
fn placeholders(line: &str) -> BTreeSet<&str> {
    line.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

#[test]
fn the_console_has_words_for_every_alert_in_both_languages() {
    let page = include_str!("../../console/assets/js/health.js");
    let (en, zh) =
        (include_str!("../../console/assets/words/en.js"), include_str!("../../console/assets/words/zh.js"));
    for name in AlertName::ALL.map(AlertName::as_str) {
        assert!(page.contains(&format!("\n  {name}: (")), "{name}: nothing reads its numbers");
        for key in [format!("  \"alert.{name}\": "), format!("  \"alert.{name}.detail\": ")] {
            let words = [en, zh].map(|words| words.lines().find(|line| line.starts_with(&key)));
            let [Some(en), Some(zh)] = words else { panic!("there are no words for {key}") };
            assert_eq!(placeholders(en), placeholders(zh), "{key}");
            assert_eq!(placeholders(en).is_empty(), !key.contains("detail"), "{key}");
        }
    }
}

#[test]
fn an_alert_carries_its_numbers_and_they_follow_what_is_seen() {
    let mut bench = Bench::new(rules());
    bench.evaluate(0, &lanes([queue("order", 1_001, 11), LaneMeasurements { dead: 6, ..sink("gone", 7) }]));
    bench.evaluate(0, &Measurements { attempts: attempts(20, 3, &[60_000; 100]), ..Measurements::default() });
    let totals = Totals::ever(3, 0, 0, 0).now(2, 0, 0);
    let failing = vec![("accepting", "the disk is full".to_owned()), ("driver", "it panicked".to_owned())];
    let degraded = Some("claims of sink/kafka fail".to_owned());
    let seen = Measurements { totals: Some(totals), failing, degraded, ..Measurements::default() };
    bench.evaluate(0, &seen);
    bench.evaluate(0, &seen);
    let values = |bench: &Bench| -> BTreeMap<String, AlertValues> {
        bench.watch.on().into_iter().map(|alert| (alert.name, alert.values)).collect()
    };
    let on = values(&bench);
    assert_eq!(on.len(), AlertName::ALL.len(), "{on:?}");
    let none = AlertValues::default;
    let some = |text: &str| Some(text.to_owned());
    let overdue = AlertValues {
        lane: some("queue/order"),
        measured_ms: Some(11_000),
        limit_ms: Some(10_000),
        ..none()
    };
    assert_eq!(on["overdue"], overdue);
    assert_eq!(on["queue_length"], AlertValues { count: Some(1_001), limit: Some(1_000), ..none() });
    let late = &on["lateness_p99"];
    assert_eq!((late.limit_ms, late.attempts), (Some(5_000), Some(100)));
    assert!(late.measured_ms.unwrap() >= 60_000, "{late:?}");
    assert_eq!(
        on["failure_rate"],
        AlertValues { failed: Some(3), attempts: Some(20), limit_rate: Some(0.1), ..none() }
    );
    assert_eq!(on["dead_letters"], AlertValues { count: Some(6), limit: Some(5), ..none() });
    assert_eq!(on["orphan"], AlertValues { count: Some(7), sink: some("gone"), ..none() });
    let unbalanced = on["ledger"].totals.as_ref().unwrap();
    assert_eq!((unbalanced.accepted, unbalanced.pending, unbalanced.balanced), (3, 2, false));
    let parts = [("accepting", "the disk is full"), ("driver", "it panicked")];
    let parts = parts.map(|(part, why)| (part.to_owned(), why.to_owned()));
    assert_eq!(on["not_ready"], AlertValues { parts: BTreeMap::from(parts), ..none() });
    assert_eq!(on["degraded"], AlertValues { why: some("claims of sink/kafka fail"), ..none() });
    bench.evaluate(1, &lanes([queue("order", 2_000, 12)]));
    assert_eq!(values(&bench)["queue_length"].count, Some(2_000), "as of the last look");
}
