//! How lanes are named at a server.

use duly_core::{Lane, SinkName, Topic};

/// The name of a lane at a server: a letter for its kind, then the topic or the sink.
pub(crate) fn lane_text(lane: &Lane) -> String {
    match lane {
        Lane::Queue(topic) => format!("q{topic}"),
        Lane::Sink(sink) => format!("s{sink}"),
    }
}

/// Reads [`lane_text`] back.
pub(crate) fn lane_of(text: &[u8]) -> Option<Lane> {
    let (kind, name) = text.split_first()?;
    let name = std::str::from_utf8(name).ok()?;
    match kind {
        b'q' => Topic::parse(name).ok().map(Lane::Queue),
        b's' => SinkName::parse(name).ok().map(Lane::Sink),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_read_back() {
        for lane in [Lane::Queue("заказ/истёк".parse().unwrap()), Lane::Sink("queue".parse().unwrap())]
        {
            assert_eq!(lane_of(lane_text(&lane).as_bytes()), Some(lane));
        }
    }
}
