//! From the tree to the settings that are used: one function per table of the file.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use duly::{
    Backoff, HandlerOptions, Levels, Limits, RetryPolicy, SweepSettings, days, hours, millis, minutes,
    seconds,
};
use serde_json::Value as Json;

use super::{
    Config, HttpLimits, Origin, TlsFiles, alerts, credentials, message_sources, otlp,
    secret::mask_url,
    section::{Section, within},
    sinks, store,
    suggest::did_you_mean,
    units::show_span,
    written::Node,
};
use crate::auth::listen_allowed;

/// Names of levels, nodes and tokens are no longer than this.
const NAME_MAX: usize = 64;
/// Everything, from the top of the tree.
pub(super) fn config(top: &mut Section<'_>, insecure_no_auth: bool) -> Config {
    let default = Config::default();
    let listen = top.value("listen", default.listen, read_address, |addr| addr.to_string().into());
    let data = default.data().unwrap_or(Path::new("")).to_owned();
    let data = top.value("data", data, read_folder, |path| path.display().to_string().into());
    let deliver = top.flag("deliver", default.deliver);
    let levels_default = top.take("levels_default");
    let store = top.table("store", |section| store::store(section, data));
    let (limits, http) = top.table("limits", limits);
    let levels = levels(top, levels_default, limits.delay_max);
    top.renamed("scan", "sweep");
    let sweep = top.table("sweep", sweep);
    let retry = top.table("retry", |section| self::retry(section, RetryPolicy::default()));
    let handlers = top.table("handlers", handlers);
    let sinks = top.table("sinks", |section| sinks::all(section, store.lease, &retry));
    let sources = top.table("sources", |section| message_sources::all(section, &sinks));
    let alerts = top.table("alerts", alerts::rules);
    let otlp = top.table("telemetry", |section| section.table("otlp", otlp::otlp));
    let tokens = top.table("auth", credentials::tokens);
    let tls = top.table("tls", tls);
    let (node, heartbeat) = top.table("cluster", |section| cluster(section, default.node, default.heartbeat));
    sweeps_within_heartbeats(top, &sweep, heartbeat);
    // A token that is wrong is not one that is missing.
    let tokens_are_right = !top.reading.problems.iter().any(|problem| problem.path.starts_with("auth"));
    if tokens_are_right && let Err(detail) = listen_allowed(listen, &tokens, insecure_no_auth) {
        let origin = top.origin_of("listen");
        top.fault("listen", &origin, detail);
    }
    Config {
        listen,
        deliver,
        store,
        sinks,
        sources,
        levels,
        sweep,
        retry,
        handlers,
        alerts,
        otlp,
        limits,
        http,
        tokens,
        insecure_no_auth,
        tls,
        node,
        heartbeat,
    }
}

fn read_address(node: &Node) -> Result<SocketAddr, String> {
    let text = node.text()?;
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        let shown = mask_url(text);
        format!("{shown:?} is not an address to listen on; write 127.0.0.1:7380, [::1]:7380 or 0.0.0.0:7380")
    })
}

fn read_folder(node: &Node) -> Result<PathBuf, String> {
    match node.text()? {
        "" => Err("the data folder needs a name, such as ./duly-data".into()),
        text => Ok(PathBuf::from(text)),
    }
}

fn levels(top: &mut Section<'_>, fallback: Option<Node>, delay_max: Duration) -> Levels {
    let written = top.has("levels");
    let levels = top.table("levels", |section| {
        if !written {
            for (name, delay) in Levels::default().iter() {
                section.note(name, &Origin::Default, show_span(delay).into());
            }
            return Levels::default();
        }
        section.rest().into_iter().fold(Levels::none(), |levels, (name, node)| {
            if let Err(detail) = plain_name("level", &name) {
                section.fault(&format!("{name:?}"), &node.origin, detail);
                return levels;
            }
            let read =
                node.span().and_then(|delay| within(delay, &(Duration::ZERO..=delay_max), |d| show_span(*d)));
            match &read {
                Ok(delay) => section.note(&name, &node.origin, show_span(*delay).into()),
                Err(detail) => section.fault(&name, &node.origin, detail),
            }
            // A faulty one stands too, so that nobody is told that it is missing.
            levels.set(name, read.unwrap_or_default())
        })
    });
    with_fallback(top, levels, fallback)
}

fn with_fallback(top: &mut Section<'_>, levels: Levels, fallback: Option<Node>) -> Levels {
    let Some(node) = fallback else {
        top.note("levels_default", &Origin::Default, Json::Null);
        return levels;
    };
    let known: Vec<&str> = levels.iter().map(|(name, _)| name).collect();
    let read = node.text().and_then(|name| {
        let wrong = || {
            format!(
                "there is no level {name:?}{}; there are: {}",
                did_you_mean(name, known.iter().copied()),
                known.join(", ")
            )
        };
        known.contains(&name).then(|| name.to_owned()).ok_or_else(wrong)
    });
    match read {
        Ok(name) => {
            top.note("levels_default", &node.origin, name.as_str().into());
            levels.fallback(name)
        }
        Err(detail) => {
            top.fault("levels_default", &node.origin, detail);
            levels
        }
    }
}

fn sweep(section: &mut Section<'_>) -> SweepSettings {
    let (default, range) = (SweepSettings::default(), millis(1)..=minutes(1));
    let sweep = SweepSettings {
        initial: section.span("initial", default.initial, range.clone()),
        min: section.span("min", default.min, range.clone()),
        max: section.span("max", default.max, range.clone()),
        idle_max: section.span("idle_max", default.idle_max, range),
    };
    section.ascending("min", sweep.min, "max", sweep.max);
    section.ascending("max", sweep.max, "idle_max", sweep.idle_max);
    section.removed("batch");
    sweep
}

/// A node says that it is there with every sweep: the shortest interval cannot be longer than the heartbeat.
fn sweeps_within_heartbeats(top: &mut Section<'_>, sweep: &SweepSettings, heartbeat: Duration) {
    let (low, high) = ("sweep.min", "cluster.heartbeat");
    let faulty = [low, high].iter().any(|path| top.reading.is_faulty(path));
    if sweep.min > heartbeat && !faulty {
        let origin = top.origin_of(low).max(top.origin_of(high));
        let (from, to) = (show_span(sweep.min), show_span(heartbeat));
        if top.is_written(high) && !top.is_written(low) {
            top.fault(high, &origin, format!("it is {to}, shorter than {low}, which is {from}"));
        } else {
            top.fault(low, &origin, format!("it is {from}, longer than {high}, which is {to}"));
        }
    }
}

/// Retries, those of all sinks or of one; what is left out is as in `default`.
pub(super) fn retry(section: &mut Section<'_>, default: RetryPolicy) -> RetryPolicy {
    let span = Duration::ZERO..=days(1);
    let policy = RetryPolicy {
        attempts: section.number("attempts", default.attempts, 1..=1_000_000),
        backoff: backoffs(section, default.backoff),
        min: section.span("min", default.min, span.clone()),
        max: section.span("max", default.max, span),
    };
    section.ascending("min", policy.min, "max", policy.max);
    policy
}

fn backoffs(section: &mut Section<'_>, default: Backoff) -> Backoff {
    section.value("backoff", default, |node| backoff(node.text()?), |backoff| word(*backoff).into())
}

const BACKOFFS: [Backoff; 3] = [Backoff::Fixed, Backoff::Linear, Backoff::Exponential];

fn word(backoff: Backoff) -> &'static str {
    backoff.as_str()
}

fn backoff(text: &str) -> Result<Backoff, String> {
    BACKOFFS.into_iter().find(|backoff| word(*backoff) == text).ok_or_else(|| {
        let words = BACKOFFS.map(word);
        format!("there is no backoff {text:?}{}; write {}", did_you_mean(text, words), words.join(", "))
    })
}

fn handlers(section: &mut Section<'_>) -> HandlerOptions {
    // A server has no handlers of its own: whoever receives decides how many, and for how long.
    ["batch", "concurrency", "timeout"].into_iter().for_each(|key| section.removed(key));
    let (default, span) = (HandlerOptions::default(), Duration::ZERO..=days(1));
    let handlers = HandlerOptions {
        again: section.span("again", default.again, span.clone()),
        failed: section.span("failed", default.failed, span.clone()),
        max: section.span("max", default.max, span),
        backoff: backoffs(section, default.backoff),
        attempts: section.number("attempts", default.attempts, 1..=1_000_000),
        ..default
    };
    section.ascending("again", handlers.again, "max", handlers.max);
    section.ascending("failed", handlers.failed, "max", handlers.max);
    handlers
}

fn limits(section: &mut Section<'_>) -> (Limits, HttpLimits) {
    let (default, http) = (Limits::default(), HttpLimits::default());
    let timeout: RangeInclusive<Duration> = millis(100)..=hours(1);
    let limits = Limits {
        body_bytes_max: section.size("body", default.body_bytes_max, 1..=BODY_MAX),
        batch_max: section.number("batch", default.batch_max, 1..=1_000_000),
        properties_max: section.number("properties", default.properties_max, 0..=PROPERTIES_MAX),
        delay_max: section.span("delay", default.delay_max, seconds(1)..=days(DELAY_DAYS_MAX)),
        pending_max: section.number("pending", default.pending_max, 1..=100_000_000_000),
    };
    let connections = section.number("connections", http.connections, 1..=1_000_000);
    // Half of them, so that no address keeps all others out.
    let half = connections.div_ceil(2);
    let http = HttpLimits {
        connections,
        connections_per_address: section.number("connections_per_address", half, 1..=1_000_000),
        topics: section.number("topics", http.topics, 1..=10_000_000),
        answer_bytes: http.answer_bytes,
        header_timeout: section.span("header_timeout", http.header_timeout, timeout.clone()),
        body_timeout: section.span("body_timeout", http.body_timeout, timeout),
    };
    (limits, http)
}

/// The same with every limit of a single message as wide as a configuration can set it: a tool that does not know the
/// configuration of the servers must not refuse what they take.
pub fn widest(limits: &Limits) -> Limits {
    Limits {
        body_bytes_max: BODY_MAX,
        properties_max: PROPERTIES_MAX,
        delay_max: days(DELAY_DAYS_MAX),
        ..limits.clone()
    }
}

const PROPERTIES_MAX: usize = 1_024;
const DELAY_DAYS_MAX: u64 = 36_525;
/// One body is held in memory several times on its way, and stands in one frame: half a segment of the journal.
const BODY_MAX: usize = 16 << 20;

fn tls(section: &mut Section<'_>) -> Option<TlsFiles> {
    let (cert, key) = (section.file("cert"), section.file("key"));
    match (cert, key) {
        (Some(cert), Some(key)) => {
            let files = TlsFiles { cert, key };
            if let Err(fault) = files.load() {
                let origin = section.origin_of(fault.setting);
                section.fault(fault.setting, &origin, fault.words);
            }
            Some(files)
        }
        (None, None) => None,
        (cert, _) => {
            let (missing, given) = if cert.is_some() { ("key", "cert") } else { ("cert", "key") };
            let origin = section.origin_of(given);
            let faulty = section.reading.is_faulty(&section.at(missing));
            if !faulty {
                section.fault(missing, &origin, format!("it is missing: {given} is set, and TLS needs both"));
            }
            None
        }
    }
}

fn cluster(section: &mut Section<'_>, node: String, heartbeat: Duration) -> (String, Duration) {
    // Without one, it is made of the machine's name and the port.
    let read = |given: &Node| match given.text()? {
        "" => Ok(String::new()),
        name => plain_name("node", name),
    };
    let node = section.value("node", node, read, |name| name.as_str().into());
    (node, section.span("heartbeat", heartbeat, millis(100)..=minutes(1)))
}

/// The name of a level, a node or a token.
pub(super) fn plain_name(of: &str, name: &str) -> Result<String, String> {
    let fits = !name.is_empty() && name.len() <= NAME_MAX && !name.chars().any(char::is_control);
    let wrong = || format!("the name of a {of} has 1 to {NAME_MAX} bytes and no control characters");
    fits.then(|| name.to_owned()).ok_or_else(wrong)
}

/// Sinks by name, as the rest of the server wants them.
pub(super) type Sinks = BTreeMap<duly::SinkName, super::SinkSetup>;
