//! Rules about names: the words are in docs/glossary.md.

use std::path::Path;

use crate::{code::code, sources::Source};

/// Names of the code before it used the words of the field, and those that took their place.
const BANNED: [(&str, &str); 127] = [
    ("BadScan", "BadSweep"),
    ("Bell", "EventBus"),
    ("Book", "Counter"),
    ("Books", "Totals"),
    ("Called", "CallOutcome"),
    ("Calling", "CallFuture"),
    ("Checks", "HealthCache"),
    ("Coming", "JoinKind"),
    ("Doing", "TimerRunner or PendingChanges"),
    ("Doubts", "UnconfirmedCalls"),
    ("Ear", "HintListener"),
    ("Expiring", "ExpiryHandle"),
    ("Facts", "Details"),
    ("Fate", "FailureOutcome, Reaction or ExpectedState"),
    ("Flight", "InFlight"),
    ("Given", "what was given, by its name"),
    ("Hand", "InFlight"),
    ("Handed", "ReceiptCache"),
    ("Hear", "ExpiryEvents"),
    ("Heard", "what was received"),
    ("Hearer", "KeyDispatcher"),
    ("Hearing", "Subscriber"),
    ("Held", "a claim, lease or argument, by its name"),
    ("Hidden", "Secret"),
    ("Hold", "LeaseLostSignal or HoldState"),
    ("Holding", "HoldState"),
    ("InHand", "CachedDelivery"),
    ("ItsGroup", "OriginalGroup"),
    ("Keeper", "background"),
    ("Known", "what is cached or measured, by its name"),
    ("LaneLook", "LaneSnapshot"),
    ("LaneMeasures", "LaneMetrics"),
    ("LaneTally", "LaneCounters"),
    ("Leased", "LeasedMessage"),
    ("Left", "Disposition"),
    ("Lent", "BorrowedSession"),
    ("Manner", "Isolation"),
    ("Measures", "Metrics"),
    ("Mover", "InStoreDelivery"),
    ("Moving", "InStoreClaim"),
    ("Named", "IntoMessageId"),
    ("News", "an event, by its name"),
    ("Note", "Command or Completion"),
    ("Notices", "Callbacks"),
    ("Observed", "StoreMonitor"),
    ("Pace", "SweepSettings"),
    ("Pair", "its two parts, by their name"),
    ("PairSetup", "RedisAndMysqlConfig"),
    ("Parcel", "OutgoingMessage"),
    ("Pipe", "SendQueue"),
    ("Place", "StoreChoice, Endpoint, Position or PortLease"),
    ("Prepared", "StoredMessage"),
    ("Pulse", "ConnectivityCheck"),
    ("Said", "a reply, by its name"),
    ("Seen", "measurements, deliveries or events"),
    ("Sending", "SendFuture"),
    ("Shelf", "StoreState"),
    ("Spread", "HistogramSnapshot"),
    ("Stopper", "StopHandle"),
    ("Taken", "ClaimedEntry"),
    ("Talk", "Exchange"),
    ("Tally", "Counters or CounterDeltas"),
    ("TargetAway", "SinkUnreachable"),
    ("TargetBack", "SinkRecovered"),
    ("Terms", "DeliveryTerms"),
    ("TieredStore", "RedisAndMysqlStore"),
    ("Together", "Batch"),
    ("Told", "a reply, by its name"),
    ("Transit", "ReleaseOnDrop"),
    ("Tried", "AttemptCounts"),
    ("Turn", "ClaimOrder"),
    ("Visit", "InFlightRequest"),
    ("Whose", "ReclaimScope or UrlSource"),
    ("Wire", "Connection"),
    ("Wires", "ConnectionPool"),
    ("Wish", "Change"),
    ("adopt", "share_channel"),
    ("again_one_by_one", "retry_one_by_one"),
    ("bad_scan", "bad_sweep"),
    ("books", "totals"),
    ("books_balance", "totals_balance"),
    ("consumer_gone_after", "consumer_idle_max"),
    ("emptied", "drained"),
    ("for_later", "to_delayed"),
    ("give_back", "release"),
    ("gone", "stopped, removed or lost"),
    ("hand_back", "release"),
    ("hand_out", "deliver_claimed"),
    ("hear", "receive, next_hint or on_read"),
    ("heard", "received"),
    ("holds_up_trimming", "blocks_trimming"),
    ("in_hand", "in_flight"),
    ("is_elsewhere", "is_remote"),
    ("is_told_by", "is_evidence"),
    ("keep_leading", "renew_leadership"),
    ("keeper", "background"),
    ("left_here", "pending_from_last_run"),
    ("lent", "borrowed"),
    ("let_go", "abandon"),
    ("look", "query, check or claim"),
    ("look_after", "ensure_joined"),
    ("look_for_lanes", "discover_lanes"),
    ("lost_lead", "step_down"),
    ("made_id", "id_is_generated"),
    ("movable", "in_store_max"),
    ("move_due", "deliver_due"),
    ("mover", "in_store"),
    ("not_done", "record_failure"),
    ("pace", "sweep"),
    ("parcel", "message"),
    ("probed_well", "probe_succeeded"),
    ("put_off", "defer_or_deny"),
    ("say", "write"),
    ("says_the_same", "is_same_failure"),
    ("scan", "sweep"),
    ("take_surely", "claim_or_release"),
    ("tally", "counters"),
    ("tell", "notify, publish or report"),
    ("tell_fate", "log_outcome"),
    ("tidy_interval", "maintenance_interval"),
    ("tiered", "redis_and_mysql"),
    ("told", "reply or reported"),
    ("unconnected", "on_connect"),
    ("unwritable", "encode"),
    ("watch_destinations", "update_destinations"),
    ("watch_target", "update_breaker"),
    ("wishes", "requests or changes"),
];

/// Modules that end in `-ing` and are nouns.
const NOUNS: [&str; 2] = ["claim_timing", "remoting"];

/// Fields of one struct at most. More of them are several parts.
const FIELDS_MAX: usize = 15;

/// Configuration, where every field is a setting of its own.
const WIDE_STRUCTS: [(&str, &str); 2] =
    [("crates/redis-mq/src/settings/mod.rs", "Settings"), ("crates/server/src/config/used.rs", "Config")];

/// Words of the lists that mean something else in one file.
const HOMONYMS: [(&str, &str); 3] = [
    // A trait of tracing.
    ("crates/duly/tests/library/spans.rs", "Visit"),
    // The state of a lock.
    ("crates/redis-mq/src/lock/guard.rs", "Held"),
    // Of the type `Either` of sqlx.
    ("crates/stores/src/sql/connection.rs", "Left"),
];

/// Old names in code of any language. Words in comments and texts are left to their readers.
pub(crate) fn banned(source: &Source) -> Vec<String> {
    let Some(code) = code(source).filter(|_| !source.path.starts_with("xtask/tests/tidy")) else {
        return Vec::new();
    };
    let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_homonym =
        |word: &str| HOMONYMS.iter().any(|(path, known)| source.path == Path::new(path) && *known == word);
    let found = (1..).zip(code.lines()).flat_map(|(number, line)| {
        let words = line.split(|letter| !is_of_name(letter));
        words.filter_map(move |word| {
            let (_, instead) = BANNED.iter().find(|(old, _)| *old == word && !is_homonym(word))?;
            Some(format!("{}:{number}: {word} is called {instead}", source.path.display()))
        })
    });
    found.collect()
}

/// Exceptions for which there is no file, module or struct any more.
pub(crate) fn stale_exceptions(sources: &[Source]) -> Vec<String> {
    let text = |path: &str| sources.iter().find(|source| source.path == Path::new(path)).map(code);
    let has = |path: &str, word: &str| {
        let words = text(path).flatten().unwrap_or_default();
        words.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|each| each == word)
    };
    let is_module = |name: &str| {
        let is_named =
            |part: &std::ffi::OsStr| part.to_str().is_some_and(|part| part.trim_end_matches(".rs") == name);
        sources.iter().any(|source| source.is_rust() && source.path.iter().any(is_named))
    };
    let words = WIDE_STRUCTS.iter().chain(&HOMONYMS).filter(|(path, word)| !has(path, word));
    let nouns = NOUNS.iter().filter(|name| !is_module(name));
    let words = words.map(|(path, word)| format!("{path}: there is no {word}: it needs no exception"));
    words.chain(nouns.map(|name| format!("no module is called {name}: it needs no exception"))).collect()
}

/// Modules are nouns, or named after the method of a port.
pub(crate) fn gerunds(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    let is_gerund = |part: &str| part.ends_with("ing") && !NOUNS.contains(&part);
    let parts = source.path.iter().filter_map(|part| part.to_str()).map(|part| part.trim_end_matches(".rs"));
    let complaint = |part: &str| format!("{}: {part}: a module is a noun", source.path.display());
    parts.filter(|part| is_gerund(part)).map(complaint).collect()
}

/// Structs with many fields that many functions change have no invariants.
pub(crate) fn wide_structs(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut lines = source.text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = struct_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let body = lines.by_ref().take_while(|line| line.trim() != "}" || line.len() != indent + 1);
        let fields = body.filter(|line| is_field(line, indent + 4)).count();
        let is_known = |(path, known): &(&str, &str)| source.path == Path::new(path) && *known == name;
        let complaint = match (fields > FIELDS_MAX, WIDE_STRUCTS.iter().any(is_known)) {
            (true, false) => format!("{fields} fields, at most {FIELDS_MAX}: divide it"),
            (false, true) => format!("{fields} fields only: it needs no exception"),
            _ => continue,
        };
        found.push(format!("{}: {name} has {complaint}", source.path.display()));
    }
    found
}

/// The name of a struct whose fields begin on the next line.
fn struct_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("struct ")?;
    let is_item = before.trim().is_empty() || before.trim_start().starts_with("pub");
    let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    (is_item && line.ends_with('{')).then_some(name)
}

fn is_field(line: &str, indent: usize) -> bool {
    let text = line.trim_start();
    let text = text
        .strip_prefix("pub")
        .map_or(text, |rest| rest.trim_start_matches(|letter| letter != ' ').trim_start());
    let name = text.split(':').next().unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    line.len() - line.trim_start().len() == indent && is_name && text.contains(": ")
}
