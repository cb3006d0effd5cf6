//! How lanes are named at a server.

use duly_core::{Lane, SinkName, Topic};

/// The letters of both kinds, by the number that [`Lane::parts`] gives.
const SINK: u8 = b's';
const QUEUE: u8 = b'q';

/// The name of a lane at a server: a letter for its kind, then the topic or the sink.
pub(crate) fn lane_text(lane: &Lane) -> String {
    let (kind, name) = lane.parts();
    // A lane of a kind that has no letter is not read back.
    let letter = [SINK, QUEUE].get(usize::from(kind)).copied().unwrap_or(b'?');
    format!("{}{name}", char::from(letter))
}

/// Reads [`lane_text`] back.
pub(crate) fn lane_of(text: &[u8]) -> Option<Lane> {
    let (kind, name) = text.split_first()?;
    let name = std::str::from_utf8(name).ok()?;
    match *kind {
        QUEUE => Topic::parse(name).ok().map(Lane::Queue),
        SINK => SinkName::parse(name).ok().map(Lane::Sink),
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
