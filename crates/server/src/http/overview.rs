//! Routes about the whole store: stats, forecast, nodes, levels.

use std::sync::Arc;

use axum::{Json, extract::State};
use duly::{
    ErrorCode, Lane, NodeStatus, Quantiles, Query, ShardStatus, SinkName, State as MessageState, Timestamp,
    Totals,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    app::App,
    caller::Who,
    fault::{ApiResult, Fault},
    messages::{Count, ReadQuery},
    select,
};
use crate::{
    auth::Role,
    wire::{
        Forecast, ForecastBucket, Lateness, Level, LevelsAnswer, Node, NodesAnswer, Shard, ShardOwner, Stats,
        TotalsAnswer,
    },
};

/// Prefix of the lanes of the built-in queue.
const QUEUE_LANE: &str = "queue/";
/// Messages counted at most for the forecast of a token for some topics.
const COUNTED_MAX: usize = 10_000;
/// Pages of the store read at most for that forecast, however many topics the token has.
const LISTS_MAX: usize = 100;

/// Totals, rates, lateness, alerts
///
/// A token for some topics is told what is pending, in flight and dead in these topics of the built-in queue, their alerts, and nothing
/// else; that is up to a second old.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "get_stats", tag = "overview",
    responses(
        (status = 200, description = "As of now", body = Stats),
    )
)]
pub(super) async fn stats(State(app): State<Arc<App>>, who: Who) -> ApiResult<Json<Stats>> {
    who.need(Role::Read)?;
    let alerts = app.telemetry.alerts().into_iter().filter(|alert| who.sees_alert(alert)).collect();
    let uptime_ms = super::millis(app.duly.now().since(app.node.started));
    let version = env!("CARGO_PKG_VERSION").into();
    if !who.sees_all() {
        let totals = own_totals(&app, &who).await?;
        return Ok(Json(Stats { totals, alerts, uptime_ms, version, limited: true, ..Stats::default() }));
    }
    let (stats, rates) = (app.duly.stats(), app.telemetry.rates());
    Ok(Json(Stats {
        totals: TotalsAnswer::from(&app.duly.totals().await?),
        accepted_per_second: rates.accepted,
        delivered_per_second: rates.delivered,
        failed: stats.failed,
        duplicates: stats.duplicates,
        lateness: lateness(&stats.lateness),
        alerts,
        uptime_ms,
        version,
        limited: false,
    }))
}

/// Totals of the caller's topics. Ended messages are counted over all topics only, so they are 0 here.
async fn own_totals(app: &App, who: &Who) -> ApiResult<TotalsAnswer> {
    let mut totals = Totals::default();
    let lanes = app.recent_lanes.get(&app.duly).await?;
    for status in lanes.iter().filter(|status| who.sees_lane(&status.lane)) {
        totals.pending += status.pending;
        totals.in_flight += status.in_flight;
        totals.dead += status.dead;
    }
    totals.accepted = totals.pending + totals.in_flight + totals.dead;
    Ok(TotalsAnswer::from(&totals))
}

fn lateness(quantiles: &Quantiles) -> Lateness {
    // Rounded to the microsecond, so that 6.55 is not written as 6.550000000000001.
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
    get, path = "/v1/forecast", operation_id = "get_forecast", tag = "overview", params(Span),
    responses(
        (status = 200, description = "From counters, exact to the width of the store's own spans: each counts once, in the first part that it overlaps", body = Forecast),
    )
)]
pub(super) async fn forecast(
    State(app): State<Arc<App>>,
    ReadQuery { who, query: span }: ReadQuery<Span>,
) -> ApiResult<Json<Forecast>> {
    let time = |text: &Option<String>, path| text.as_deref().map(|text| select::time(text, path)).transpose();
    let from = time(&span.from, "from")?.unwrap_or_else(|| app.duly.now());
    let to = time(&span.to, "to")?.unwrap_or_else(|| from.saturating_add(duly::hours(1)));
    let words = ("a forecast has", "parts");
    let bound = Count { code: ErrorCode::BadSpan, path: "buckets", words, max: 1_000 };
    let buckets = bound.check(span.buckets.unwrap_or(60))?;
    if to <= from {
        return Err(Fault::at(ErrorCode::BadSpan, "to", "the span ends before it begins"));
    }
    let (counts, partial) = if who.sees_all() {
        (app.duly.forecast(from, to, buckets).await?, false)
    } else {
        own_forecast(&app, &who, from..to, buckets).await?
    };
    let width = (to.as_millis() - from.as_millis()) as f64 / buckets as f64;
    let bucket = |(place, count)| {
        let at = Timestamp::from_millis(from.as_millis() + (width * place as f64) as u64);
        ForecastBucket { from: at.to_string(), from_ms: at.as_millis(), count }
    };
    Ok(Json(Forecast { buckets: counts.into_iter().enumerate().map(bucket).collect(), partial }))
}

/// The forecast of the caller's topics of the built-in queue, and whether it stopped at a limit. There are no counters per topic,
/// so messages are counted one by one in order of due time.
async fn own_forecast(
    app: &App,
    who: &Who,
    span: std::ops::Range<Timestamp>,
    buckets: usize,
) -> ApiResult<(Vec<u64>, bool)> {
    let (from, to) = (span.start.as_millis(), span.end.as_millis());
    let (mut counts, mut left, mut lists_left) = (vec![0; buckets], COUNTED_MAX, LISTS_MAX);
    for status in app.recent_lanes.get(&app.duly).await?.iter() {
        let Lane::Queue(topic) = &status.lane else { continue };
        if status.pending == 0 || !who.sees(topic.as_str()) {
            continue;
        }
        let mut query = Query {
            sink: Some(SinkName::queue()),
            topic: Some(topic.clone()),
            due_from: Some(span.start),
            due_to: Some(span.end),
            ..Query::all(MessageState::Pending)
        };
        loop {
            if left == 0 || lists_left == 0 {
                return Ok((counts, true));
            }
            lists_left -= 1;
            query.limit = left.min(1_000);
            let page = app.duly.list(&query).await?;
            left -= page.records.len();
            for record in page.records {
                let offset = u128::from(record.message.due.as_millis().saturating_sub(from));
                let place = offset * buckets as u128 / u128::from(to - from);
                if let Some(count) = usize::try_from(place).ok().and_then(|place| counts.get_mut(place)) {
                    *count += 1;
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
    }
    Ok((counts, false))
}

/// The nodes on this store
#[utoipa::path(
    get, path = "/v1/nodes", operation_id = "list_nodes", tag = "overview",
    responses(
        (status = 200, description = "By name", body = NodesAnswer),
    )
)]
pub(super) async fn nodes(State(app): State<Arc<App>>, who: Who) -> ApiResult<Json<NodesAnswer>> {
    who.need(Role::Read)?;
    let mut shards: Vec<_> =
        app.duly.shards().await?.into_iter().map(|status| shard(app.duly.now(), status)).collect();
    let mut nodes: Vec<_> = app.duly.nodes().await?.into_iter().map(|status| node(&app, status)).collect();
    if nodes.is_empty() {
        // The store belongs to this process alone: it serves every shard, by its own clock.
        let served = app.duly.served().await?;
        if shards.is_empty() {
            shards.push(only_shard(&app, served.iter().map(|(lane, _)| lane)).await?);
        }
        let lanes = served.into_iter().map(|(lane, _)| lane.to_string()).collect();
        let (name, version) = (app.node.name.clone(), env!("CARGO_PKG_VERSION").into());
        nodes.push(Node {
            name,
            this: true,
            delivers: app.node.delivers,
            lanes,
            shards: 1,
            clock_skew_ms: 0.0,
            version,
        });
    }
    if !who.sees_all() {
        keep_own(&who, &mut nodes, &mut shards);
    }
    Ok(Json(NodesAnswer { nodes, shards }))
}

/// Reduces the nodes to what a token for some topics may see: their names, and the lanes of those topics.
fn keep_own(who: &Who, nodes: &mut [Node], shards: &mut [Shard]) {
    let sees = |lane: &str| lane.strip_prefix(QUEUE_LANE).is_some_and(|topic| who.sees(topic));
    for node in nodes {
        node.lanes.retain(|lane| sees(lane));
    }
    for shard in shards {
        shard.owners.retain(|owner| sees(&owner.lane));
        // The oldest message may belong to another topic.
        shard.lag_ms = None;
    }
}

fn shard(now: Timestamp, status: ShardStatus) -> Shard {
    let owner = |owner: duly::ShardOwner| ShardOwner { lane: owner.lane.to_string(), node: owner.node };
    Shard {
        shard: status.shard,
        owners: status.owners.into_iter().map(owner).collect(),
        lag_ms: status.oldest.map(|oldest| super::millis(now.since(oldest))),
    }
}

/// The single shard of a store that belongs to this process alone.
async fn only_shard(app: &App, served: impl Iterator<Item = &Lane>) -> ApiResult<Shard> {
    let owner = |lane: &Lane| ShardOwner { lane: lane.to_string(), node: app.node.name.clone() };
    let owners = served.map(owner).collect();
    let lanes = app.duly.lanes().await?;
    let oldest = lanes.iter().filter(|lane| !lane.paused).filter_map(|lane| lane.oldest_ready).min();
    let mut status = ShardStatus::new(0);
    status.oldest = oldest;
    Ok(Shard { owners, ..shard(app.duly.now(), status) })
}

fn node(app: &App, status: NodeStatus) -> Node {
    let NodeStatus { name, this, version, lanes, shards, clock_skew_us, .. } = status;
    Node {
        // Another node without lanes only accepts, or has not started to deliver yet.
        delivers: if this { app.node.delivers } else { !lanes.is_empty() },
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
    get, path = "/v1/levels", operation_id = "list_levels", tag = "overview",
    responses(
        (status = 200, description = "By name", body = LevelsAnswer),
    )
)]
pub(super) async fn levels(State(app): State<Arc<App>>, who: Who) -> ApiResult<Json<LevelsAnswer>> {
    who.need(Role::Read)?;
    let level = |(name, delay): (&str, std::time::Duration)| Level {
        name: name.into(),
        delay: format!("{delay:?}"),
        delay_ms: super::millis(delay),
    };
    let levels = app.duly.levels();
    // One that is beyond the limit is refused when it is used.
    let usable = |delay| delay <= app.limits.delay_max;
    let default = levels.fallback_name().filter(|name| levels.delay(name).is_ok_and(usable)).map(Into::into);
    let levels = levels.iter().filter(|(_, delay)| usable(*delay)).map(level).collect();
    Ok(Json(LevelsAnswer { levels, default }))
}
