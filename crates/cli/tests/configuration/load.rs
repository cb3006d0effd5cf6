//! From the three sources to what is used: every fault is told, and each source has its place.

use std::{path::Path, time::Duration};

use duly_server::config::{Config, DEFAULT_FILE, Loaded, Origin, Problems, Sources};

use crate::Folder;

pub(crate) fn load(file: &str, environment: &[(&str, &str)]) -> Result<Config, Problems> {
    Config::load(&Folder::new().sources(file, environment))
}

pub(crate) fn faults(file: &str, environment: &[(&str, &str)]) -> Vec<(String, String)> {
    let problems = load(file, environment).expect_err("this is faulty").problems;
    problems.into_iter().map(|problem| (problem.path, problem.detail)).collect()
}

fn fault(file: &str) -> String {
    let faults = faults(file, &[]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    format!("{}: {}", faults[0].0, faults[0].1)
}

#[test]
fn without_any_source_the_defaults_are_used() {
    let config = Config::load(&Sources::default()).unwrap();
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
}

#[test]
fn the_default_file_says_what_is_used_without_a_file() {
    let config = load(DEFAULT_FILE, &[]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(format!("{config:#?}"), format!("{:#?}", Config::default()));
}

#[test]
fn a_file_with_twelve_faults_tells_twelve() {
    let file = r#"listen = "here"
dliver = true
levels_default = "P9"
[store]
lease = "10x"
retention_max = -1
colour = "red"
[levels]
P0 = 5.5
[sweep]
min = "2s"
max = "1s"
[retry]
backoff = "sometimes"
[handlers]
batch = 0
[limits]
body = "big"
[alerts]
failure_rate = 7
"#;
    let problems = load(file, &[]).unwrap_err();
    let reported: Vec<_> =
        problems.problems.iter().map(|problem| (problem.path.as_str(), problem.line)).collect();
    let expected = [
        ("listen", 1),
        ("dliver", 2),
        ("levels_default", 3),
        ("store.lease", 5),
        ("store.retention_max", 6),
        ("store.colour", 7),
        ("levels.P0", 9),
        ("sweep.min", 12),
        ("retry.backoff", 14),
        ("handlers.batch", 16),
        ("limits.body", 18),
        ("alerts.failure_rate", 20),
    ];
    assert_eq!(reported, expected.map(|(path, line)| (path, Some(line))), "{problems}");

    let words = problems.to_string();
    assert!(words.starts_with("the configuration has 12 problems:\n"), "{words}");
    assert!(words.contains("duly.toml:5: store.lease: \"10x\" is not a duration"), "{words}");
    assert!(words.contains("did you mean deliver?"), "{words}");
    let json = serde_json::to_value(&problems).unwrap();
    assert_eq!(json["problems"][3]["path"], "store.lease");
    assert_eq!(json["problems"][3]["line"], 5);
    assert_eq!(json["problems"][3]["from"], "file");
}

#[test]
fn each_fault_says_what_would_be_right() {
    for (file, path, words) in [
        (
            "[store]\nkind = \"redis+mysql\"\nmysql = \"postgres://x/d\"",
            "store.mysql",
            "an address of PostgreSQL",
        ),
        (
            "[store]\nkind = \"redis+mysql\"\npostgres = \"postgres://x/d\"",
            "store.postgres",
            "kind = \"postgres\"",
        ),
        ("[store]\nkind = \"mysql\"\nhorizon = \"2h\"", "store.horizon", "kind = \"redis+mysql\""),
        ("[store]\nkind = \"mysql\"\nmysql = \"mysql://x\"", "store.mysql", "no database is named"),
        ("[store]\nkind = \"mysql\"\nmysql = \"postgres://x/d\"", "store.mysql", "an address of PostgreSQL"),
        ("[store]\nkind = \"postgres\"\npostgres = \"http://x/d\"", "store.postgres", "postgres://"),
        ("[store]\nkind = \"postgres\"\nconnections = 0", "store.connections", "from 1 to 1000"),
        ("[store]\nkind = \"mysql\"\nshards = 257", "store.shards", "from 1 to 256"),
        (
            "[store]\nkind = \"mysql\"\nwait_replicas = 1",
            "store.wait_replicas",
            "belongs to kind = \"redis\"",
        ),
        (
            "[store]\nkind = \"redis\"\nconnections = 1",
            "store.connections",
            "kind = \"mysql\", \"postgres\" or \"redis+mysql\"",
        ),
        ("[store]\nkind = \"redis\"\nredis = \"http://x\"", "store.redis", "redis"),
        ("[store]\nkind = \"redis\"\nshards = 0", "store.shards", "from 1 to 256"),
        ("[store]\nkind = \"embeded\"", "store.kind", "did you mean embedded?"),
        ("[store]\nredis = \"redis://x\"", "store.redis", "belongs to kind = \"redis\""),
        ("[store]\nmysql = \"mysql://x/d\"", "store.mysql", "belongs to kind = \"mysql\" or \"redis+mysql\""),
        ("[sinks.orders]\nkind = \"kafak\"", "sinks.orders.kind", "did you mean kafka?"),
        ("[sinks.orders]\nurl = \"http://x\"", "sinks.orders.kind", "it is missing"),
        ("sinks = 3", "sinks", "a table is wanted here"),
        ("listen = 7380", "listen", "text in quotes"),
        ("listen = \"0.0.0.0:7380\"", "listen", "duly token"),
        ("deliver = \"yes\"", "deliver", "true or false"),
        ("data = \"\"", "data", "./duly-data"),
        ("[store]\nlease = \"10ms\"", "store.lease", "from 1s to 12h"),
        ("[store]\nlease = -5", "store.lease", "negative"),
        ("[retry]\nmin = \"10m\"", "retry.min", "longer than max, which is 5m"),
        ("[levels]\n\"\" = \"5m\"", "levels.\"\"", "1 to 64 bytes"),
        ("[levels]\nfar = \"4000d\"", "levels.far", "to 3653d"),
        ("levels_default = \"othr\"", "levels_default", "did you mean other?"),
        ("[limits]\ndelay = \"1m\"\n[levels]\nP0 = \"5m\"", "levels.P0", "to 1m"),
        (
            "levels_default = \"other\"\n[limits]\ndelay = \"15m\"",
            "levels_default",
            "longer than limits.delay, which is 15m",
        ),
        (
            "[limits]\nconnections = 10\nconnections_per_address = 20",
            "limits.connections_per_address",
            "more than connections, which is 10",
        ),
        ("[alerts]\nwebhook = \"hooks\"", "alerts.webhook", "https://host/path"),
        ("[alerts.topic.order]\noverdu = 1", "alerts.topic.order.overdu", "did you mean overdue?"),
        ("[tls]\ncert = \"c.pem\"", "tls.key", "needs both"),
        ("[tls]\ncert = \"no-such.pem\"\nkey = \"k.pem\"", "tls.cert", "cannot be read"),
        ("[cluster]\nnode = \"a\\u0001b\"", "cluster.node", "1 to 64 bytes"),
        ("[limits]\nbody = 99999999999", "limits.body", "from 1B to 16MiB"),
        ("[limits]\nbatch = 99999999999999999999", "limits.batch", "too large"),
        ("[auth]\ntokens = 3", "auth.tokens", "a list"),
        ("colour = 1\n", "colour", "known here: listen, data"),
    ] {
        let reported = fault(file);
        assert!(reported.starts_with(&format!("{path}: ")) && reported.contains(words), "{file}\n{reported}");
    }
}

#[test]
fn syntax_errors_are_all_told_with_their_lines() {
    let problems = load("listen = \ndata = \"a\ndeliver = true\n[store\n", &[]).unwrap_err();
    let lines: Vec<_> = problems.problems.iter().filter_map(|problem| problem.line).collect();
    assert!(lines.len() >= 3 && lines.contains(&1) && lines.contains(&2) && lines.contains(&4), "{problems}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let sources = Sources { file: Some("no-such-duly.toml".into()), ..Sources::default() };
    let words = Config::load(&sources).unwrap_err().to_string();
    assert!(words.contains("no-such-duly.toml: the file cannot be read"), "{words}");
}

#[test]
fn a_fault_is_not_told_again_by_what_depends_on_it() {
    assert_eq!(
        faults("[store]\nlease = \"soon\"\n[sinks.a]\nkind = \"kafka\"\ntimeout = \"30s\"", &[]).len(),
        2
    );
    assert_eq!(faults("[sweep]\nmin = \"soon\"\nmax = \"1ms\"\nidle_max = \"1ms\"", &[]).len(), 1);
}

#[test]
fn the_old_name_of_a_table_is_refused_with_the_new_one() {
    let reported = faults("[scan]\nmin = \"10ms\"", &[]);
    assert!(reported.len() == 1 && reported[0].1.contains("it is called sweep now"), "{reported:?}");
    let reported = faults("", &[("DULY__SCAN__MIN", "10ms")]);
    assert!(reported.len() == 1 && reported[0].1.contains("it is called sweep now"), "{reported:?}");
}

#[test]
fn a_sink_that_takes_longer_than_the_lease_is_refused() {
    let reported = faults("[store]\nlease = \"5s\"\n[sinks.orders]\nkind = \"kafka\"\ntimeout = \"5s\"", &[]);
    assert!(
        reported
            .iter()
            .any(|(path, detail)| path == "sinks.orders.timeout" && detail.contains("store.lease, 5s"))
    );
    for name in ["queue", "a/b"] {
        let reported = faults(&format!("[sinks.\"{name}\"]\nkind = \"kafka\"\n"), &[]);
        assert!(
            reported.iter().any(|(path, _)| path.trim_matches('"').starts_with("sinks.")),
            "{reported:?}"
        );
        assert_eq!(reported.len(), 2, "{reported:?}");
    }
}

#[test]
fn the_environment_goes_before_the_file_and_flags_before_both() {
    let file = "listen = \"127.0.0.1:1\"\ndata = \"file\"\n[store]\nlease = \"11s\"\nretention = \"1h\"\n";
    let environment = [
        ("DULY__LISTEN", "127.0.0.1:2"),
        ("DULY__DATA", "environment"),
        ("DULY__STORE__LEASE", "12s"),
        ("DULY__DELIVER", "false"),
        ("DULY__LIMITS__BATCH", "77"),
        ("DULY__ALERTS__FAILURE_RATE", "0.5"),
        ("DULY__ALERTS__OVERDUE", "off"),
        ("DULY_URL", "http://elsewhere"),
        ("PATH", "/bin"),
    ];
    let folder = Folder::new();
    let mut sources = folder.sources(file, &environment);
    sources.flags.listen = Some("127.0.0.1:3".into());
    let Loaded { config, settings } = Loaded::read(&sources).unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.data(), Some(Path::new("environment")));
    assert_eq!(config.store.lease, Duration::from_secs(12));
    assert_eq!(config.store.retention, Duration::from_secs(3600));
    assert_eq!(config.limits.batch_max, 77);
    assert_eq!((config.alerts.all.failure_rate, config.alerts.all.overdue), (Some(0.5), None));
    assert!(!config.deliver);

    let from = |path: &str| settings.iter().find(|setting| setting.path == path).unwrap().from.clone();
    assert_eq!(from("listen"), Origin::Flag("--listen"));
    assert_eq!(from("data"), Origin::Environment("DULY__DATA".into()));
    assert_eq!(from("store.retention"), Origin::File { line: 5 });
    assert_eq!(from("sweep.min"), Origin::Default);
}

#[test]
fn a_variable_with_file_at_its_end_names_a_file() {
    let folder = Folder::new();
    let lease = folder.write("lease", "13s\n");
    let sources = folder.sources("", &[("DULY__STORE__LEASE_FILE", lease.to_str().unwrap())]);
    let loaded = Loaded::read(&sources).unwrap();
    assert_eq!(loaded.config.store.lease, Duration::from_secs(13));
    let shown = loaded.settings.iter().find(|setting| setting.path == "store.lease").unwrap();
    assert_eq!(shown.value, "***", "what comes from such a file is shown nowhere");

    let twice = [("DULY__STORE__LEASE_FILE", lease.to_str().unwrap()), ("DULY__STORE__LEASE", "9s")];
    assert!(faults("", &twice)[0].1.contains("set twice"));
    assert!(faults("", &[("DULY__STORE__LEASE_FILE", "no-such-file")])[0].1.contains("cannot be read"));
}

#[test]
fn faults_of_the_environment_name_the_variable() {
    let environment = [
        ("DULY__STORE__LAESE", "1s"),
        ("DULY__STORE__RETENTION_MAX", "many"),
        ("DULY____X", "1"),
        ("DULY__DATA__X", "1"),
    ];
    let problems = load("data = \"x\"", &environment).unwrap_err();
    let words = problems.to_string();
    for part in [
        "DULY__STORE__LAESE: store.laese: there is no such setting (did you mean lease?)",
        "DULY__STORE__RETENTION_MAX: store.retention_max: a whole number is wanted here",
        "DULY____X: .x: a name between",
        "DULY__DATA__X: data.x: nothing can be set below it",
    ] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(problems.problems.len(), 4);
}

#[test]
fn names_in_the_environment_find_those_of_the_file_whatever_their_case() {
    let config = load("[levels]\nGold = \"1m\"", &[("DULY__LEVELS__GOLD", "2m")]).unwrap();
    assert_eq!(config.levels.delay("Gold"), Ok(Duration::from_secs(120)));
    assert!(config.levels.delay("P0").is_err(), "a table of levels replaces the usual ones");
    let config = load("", &[("DULY__LEVELS__P0", "2m"), ("DULY__LEVELS__SOON", "1s")]).unwrap();
    assert_eq!(config.levels.delay("P0"), Ok(Duration::from_secs(120)));
    assert_eq!(config.levels.delay("soon"), Ok(Duration::from_secs(1)));
    assert_eq!(config.levels.delay("other"), Ok(Duration::from_secs(1200)));
}

#[test]
fn a_topic_takes_from_all_what_it_does_not_say() {
    let config = load(
        "[alerts]\noverdue = \"20s\"\n[alerts.topic.order]\nqueue_length = 5\nlateness_p99 = \"off\"",
        &[],
    )
    .unwrap();
    let order = &config.alerts.topics["order"];
    assert_eq!(order.overdue, Some(Duration::from_secs(20)));
    assert_eq!(order.queue_length, Some(5));
    assert_eq!(order.lateness_p99, None);
    assert_eq!(order.failure_rate, Some(0.1));
}

#[test]
fn usual_levels_beyond_the_limit_of_delays_are_left_out() {
    let limit = "[limits]\ndelay = \"15m\"\n";
    for (environment, expected) in [
        (&[][..], vec![("P0", duly::minutes(5)), ("P1", duly::minutes(10))]),
        (&[("DULY__LEVELS__P0", "2m")][..], vec![("P0", duly::minutes(2)), ("P1", duly::minutes(10))]),
    ] {
        let config = load(limit, environment).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(config.levels.iter().collect::<Vec<_>>(), expected);
    }
}
