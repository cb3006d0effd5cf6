//! The whole at a glance: totals, forecast, nodes, levels.

use std::sync::Arc;

use axum::{Json, extract::State};
use duly::{Books, Lane, NodeStatus, Quantiles, ShardStatus, Timestamp};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    app::App,
    caller::Who,
    fault::{Answer, Fault},
    messages::{Asked, asked},
};
use crate::{
    auth::Role,
    wire::{
        Alert, BooksAnswer, Forecast, ForecastBucket, Lateness, Level, LevelsAnswer, Node, NodesAnswer,
        Problem, Shard, ShardOwner, Stats,
    },
};

/// Totals, rates, lateness, alerts
#[utoipa::path(
    get, path = "/v1/stats", tag = "overview",
    responses(
        (status = 200, description = "As of now", body = Stats),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stats(State(app): State<Arc<App>>, who: Who) -> Answer<Json<Stats>> {
    who.need(Role::Read)?;
    // Alerts name topics: whoever is for some of them hears of those.
    let told = |alert: &Alert| who.sees_all() || alert.scope.as_deref().is_some_and(|topic| who.sees(topic));
    let (stats, rates) = (app.duly.stats(), app.telemetry.rates());
    Ok(Json(Stats {
        books: books(&app.duly.books().await?),
        accepted_per_second: rates.accepted,
        delivered_per_second: rates.delivered,
        failed: stats.failed,
        duplicates: stats.duplicates,
        lateness: lateness(&stats.lateness),
        alerts: app.telemetry.alerts().into_iter().filter(told).collect(),
        uptime_ms: super::millis(app.duly.now().since(app.started)),
        version: env!("CARGO_PKG_VERSION").into(),
    }))
}

fn books(books: &Books) -> BooksAnswer {
    BooksAnswer {
        accepted: books.accepted,
        pending: books.pending,
        in_flight: books.in_flight,
        delivered: books.delivered,
        cancelled: books.cancelled,
        dead: books.dead,
        purged: books.purged,
        balanced: books.balance(),
    }
}

fn lateness(quantiles: &Quantiles) -> Lateness {
    // To the microsecond: 6.55 is not to be told as 6.550000000000001.
    let ms = |span: std::time::Duration| (span.as_secs_f64() * 1e6).round() / 1e3;
    Lateness {
        p50_ms: ms(quantiles.p50),
        p99_ms: ms(quantiles.p99),
        p999_ms: ms(quantiles.p999),
        max_ms: ms(quantiles.max),
        count: quantiles.count,
    }
}

/// The span to look at.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Span {
    /// From then: RFC 3339 or milliseconds since 1970; now unless told otherwise.
    from: Option<String>,
    /// Until then; an hour after `from` unless told otherwise.
    to: Option<String>,
    /// In so many parts: 1 to 1,000, 60 unless told otherwise.
    buckets: Option<usize>,
}

/// How many messages come due when
#[utoipa::path(
    get, path = "/v1/forecast", tag = "overview", params(Span),
    responses(
        (status = 200, description = "From counters, exact to the width of the store's own", body = Forecast),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn forecast(
    State(app): State<Arc<App>>,
    who: Who,
    query: Asked<Span>,
) -> Answer<Json<Forecast>> {
    who.need(Role::Read)?;
    let span = asked(query)?;
    let time = |text: &Option<String>, path: &str, otherwise| -> Answer<Timestamp> {
        let Some(text) = text else { return Ok(otherwise) };
        duly::parse_time(text).map_err(|fault| Fault::at("bad_time", path, fault.detail))
    };
    let from = time(&span.from, "from", app.duly.now())?;
    let to = time(&span.to, "to", from.saturating_add(duly::hours(1)))?;
    let buckets = span.buckets.unwrap_or(60);
    if !(1..=1_000).contains(&buckets) {
        return Err(Fault::at("bad_span", "buckets", format!("1 to 1000 parts, not {buckets}")));
    }
    if to <= from {
        return Err(Fault::at("bad_span", "to", "the span ends before it begins"));
    }
    let counts = app.duly.forecast(from, to, buckets).await?;
    let width = (to.as_millis() - from.as_millis()) as f64 / buckets as f64;
    let bucket = |(place, count)| {
        let at = Timestamp::from_millis(from.as_millis() + (width * place as f64) as u64);
        ForecastBucket { from: at.to_string(), from_ms: at.as_millis(), count }
    };
    Ok(Json(Forecast { buckets: counts.into_iter().enumerate().map(bucket).collect() }))
}

/// The nodes on this store
#[utoipa::path(
    get, path = "/v1/nodes", tag = "overview",
    responses(
        (status = 200, description = "By name", body = NodesAnswer),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn nodes(State(app): State<Arc<App>>, who: Who) -> Answer<Json<NodesAnswer>> {
    who.need(Role::Read)?;
    let mut shards: Vec<_> =
        app.duly.shards().await?.into_iter().map(|status| shard(app.duly.now(), status)).collect();
    let mut nodes: Vec<_> = app.duly.nodes().await?.into_iter().map(|status| node(&app, status)).collect();
    if nodes.is_empty() {
        // One process owns the store: all of it, by its own clock.
        let served = app.duly.served().await?;
        if shards.is_empty() {
            shards.push(only_shard(&app, served.iter().map(|(lane, _)| lane)).await?);
        }
        let lanes = served.into_iter().map(|(lane, _)| lane.to_string()).collect();
        let (name, version) = (app.node.clone(), env!("CARGO_PKG_VERSION").into());
        nodes.push(Node {
            name,
            this: true,
            delivers: app.delivers,
            lanes,
            shards: 1,
            clock_skew_ms: 0.0,
            version,
        });
    }
    Ok(Json(NodesAnswer { nodes, shards }))
}

fn shard(now: Timestamp, status: ShardStatus) -> Shard {
    let owner = |owner: duly::ShardOwner| ShardOwner { lane: owner.lane.to_string(), node: owner.node };
    Shard {
        shard: status.shard,
        owners: status.owners.into_iter().map(owner).collect(),
        lag_ms: status.oldest.map(|oldest| super::millis(now.since(oldest))),
    }
}

/// The whole of a store that is this process's alone.
async fn only_shard(app: &App, served: impl Iterator<Item = &Lane>) -> Answer<Shard> {
    let owner = |lane: &Lane| ShardOwner { lane: lane.to_string(), node: app.node.clone() };
    let owners = served.map(owner).collect();
    let lanes = app.duly.lanes().await?;
    let oldest = lanes.iter().filter(|lane| !lane.paused).filter_map(|lane| lane.oldest_ready).min();
    let status = ShardStatus { oldest, ..ShardStatus::default() };
    Ok(Shard { owners, ..shard(app.duly.now(), status) })
}

fn node(app: &App, status: NodeStatus) -> Node {
    let NodeStatus { name, this, version, lanes, shards, clock_skew_us } = status;
    Node {
        // Another node that serves nothing only accepts, or has not begun yet.
        delivers: if this { app.delivers } else { !lanes.is_empty() },
        name,
        this,
        lanes,
        shards,
        clock_skew_ms: clock_skew_us as f64 / 1000.0,
        version,
    }
}

/// The named delays
#[utoipa::path(
    get, path = "/v1/levels", tag = "overview",
    responses(
        (status = 200, description = "By name", body = LevelsAnswer),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn levels(State(app): State<Arc<App>>, who: Who) -> Answer<Json<LevelsAnswer>> {
    who.need(Role::Read)?;
    let level = |(name, delay): (&str, std::time::Duration)| Level {
        name: name.into(),
        delay: format!("{delay:?}"),
        delay_ms: super::millis(delay),
    };
    let levels = app.duly.levels();
    let default = levels.fallback_name().map(Into::into);
    Ok(Json(LevelsAnswer { levels: levels.iter().map(level).collect(), default }))
}
