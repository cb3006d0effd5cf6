//! Parses filters, states and due times of requests.

use duly::{ErrorCode, Invalid, Query, SinkName, State, Timestamp, Topic};

use super::{
    app::App,
    fault::{ApiResult, Fault},
    messages::List,
};
use crate::wire::{Delay, Filter, Moment};

/// The state of this name.
pub(super) fn state(name: &str) -> ApiResult<State> {
    let all = [State::Pending, State::InFlight, State::Delivered, State::Dead, State::Cancelled];
    all.into_iter().find(|state| state.as_str() == name).ok_or_else(|| {
        let detail = format!("{name:?} is none of pending, in_flight, delivered, dead and cancelled");
        Fault::at(ErrorCode::BadState, "state", detail)
    })
}

/// All in `state` of a sink and topic. `at` stands before the path of a fault.
fn query(state: State, sink: Option<&str>, topic: Option<&str>, at: &str) -> ApiResult<Query> {
    let fault = |error: Invalid| Invalid::new(error.code, format!("{at}{}", error.path), error.detail);
    let sink = sink.map(SinkName::parse).transpose().map_err(fault)?;
    let topic = topic.map(Topic::parse_new).transpose().map_err(fault)?;
    Ok(Query { sink, topic, ..Query::all(state) })
}

/// All in `state` that match the query of a URL.
pub(super) fn listed(state: State, list: &List) -> ApiResult<Query> {
    let mut query = query(state, list.sink.as_deref(), list.topic.as_deref(), "")?;
    query.due_from = list.due_from.as_deref().map(|text| time(text, "due_from")).transpose()?;
    query.due_to = list.due_to.as_deref().map(|text| time(text, "due_to")).transpose()?;
    Ok(query)
}

/// All in `state` that match a filter.
pub(super) fn filtered(state: State, filter: &Filter) -> ApiResult<Query> {
    let mut query = query(state, filter.sink.as_deref(), filter.topic.as_deref(), "filter.")?;
    query.due_from = filter.due_from.as_ref().map(|at| at.time("filter.due_from")).transpose()?;
    query.due_to = filter.due_to.as_ref().map(|at| at.time("filter.due_to")).transpose()?;
    Ok(query)
}

/// The time that a parameter of a URL says.
pub(super) fn time(text: &str, path: &str) -> ApiResult<Timestamp> {
    Ok(Moment::Text(with_plus_sign(text)).time(path)?)
}

/// In a query `+` stands for a space, so that the offset of `2026-11-15T18:15:00+01:00` arrives without its sign: it is put back.
fn with_plus_sign(text: &str) -> String {
    /// Bytes of the shortest time that an offset follows: `2026-11-15T18:15`.
    const TIME_BYTES_MIN: usize = 16;
    match text.rsplit_once(' ') {
        Some((time, offset)) if time.len() >= TIME_BYTES_MIN => format!("{time}+{offset}"),
        _ => text.to_owned(),
    }
}

/// The due time, from either field. A time beyond the limit is refused here, before messages are selected, so that a dry run
/// gets the same error.
pub(super) fn due(app: &App, delay: Option<&Delay>, at: Option<&Moment>) -> ApiResult<Timestamp> {
    let too_far = |path| Fault::from(app.limits.too_far(path));
    match (delay, at) {
        (Some(delay), None) => {
            let span = delay.span("delay")?;
            // Not by the clock: it goes on between two readings.
            if span > app.limits.delay_max { Err(too_far("delay")) } else { Ok(app.duly.due_after(span)) }
        }
        (None, Some(moment)) => {
            let due = moment.time("deliver_at")?;
            if due > app.duly.due_max() { Err(too_far("deliver_at")) } else { Ok(due) }
        }
        (None, None) => Err(Fault::at(ErrorCode::NoTime, "delay", "say when: delay or deliver_at")),
        (Some(_), Some(_)) => {
            Err(Fault::at(ErrorCode::TwoTimes, "delay", "give one of delay and deliver_at"))
        }
    }
}
