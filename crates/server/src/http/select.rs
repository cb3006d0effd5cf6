//! Saying which messages are meant, and when.

use std::time::Duration;

use duly::{Query, SinkName, State, Timestamp, Topic};

use super::{
    app::App,
    fault::{Answer, Fault},
};
use crate::wire::{Delay, Filter, Moment};

/// The state of this name.
pub(super) fn state(name: &str) -> Answer<State> {
    let all = [State::Pending, State::InFlight, State::Delivered, State::Dead, State::Cancelled];
    all.into_iter().find(|state| state.as_str() == name).ok_or_else(|| {
        let detail = format!("{name:?} is none of pending, in_flight, delivered, dead and cancelled");
        Fault::at("bad_state", "state", detail)
    })
}

/// All in `state` of a sink and topic.
pub(super) fn query(state: State, sink: Option<&str>, topic: Option<&str>) -> Answer<Query> {
    let sink = sink.map(SinkName::parse).transpose()?;
    let topic = topic.map(Topic::parse).transpose()?;
    Ok(Query { sink, topic, ..Query::all(state) })
}

/// All in `state` that a filter means.
pub(super) fn filtered(state: State, filter: &Filter) -> Answer<Query> {
    let mut query = query(state, filter.sink.as_deref(), filter.topic.as_deref())?;
    query.due_from = filter.due_from.as_ref().map(|at| at.time("filter.due_from")).transpose()?;
    query.due_to = filter.due_to.as_ref().map(|at| at.time("filter.due_to")).transpose()?;
    Ok(query)
}

/// The due time that is meant by one of the two.
pub(super) fn due(app: &App, delay: Option<&Delay>, at: Option<&Moment>) -> Answer<Timestamp> {
    match (delay, at) {
        (Some(delay), None) => {
            let span = delay.span("delay")?;
            // The clock's millisecond has begun already: one more, so that it is never early.
            let begun = if span.is_zero() { Duration::ZERO } else { Duration::from_millis(1) };
            Ok(app.duly.now().saturating_add(span.saturating_add(begun)))
        }
        (None, Some(moment)) => Ok(moment.time("deliver_at")?),
        (None, None) => Err(Fault::at("no_time", "delay", "say when: delay or deliver_at")),
        (Some(_), Some(_)) => Err(Fault::at("two_times", "delay", "give one of delay and deliver_at")),
    }
}
