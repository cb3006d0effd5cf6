//! A dry run: what a move would do.

use duly::LaneStatus;
use serde::Serialize;

use super::end::{End, Halt};
use crate::{Failure, Output, clock, output};

/// Lanes shown in a table; JSON has all of them.
const ROWS: usize = 50;

#[derive(Debug, Serialize)]
struct MoveEstimate {
    from: String,
    to: String,
    dry_run: bool,
    /// Pending messages, which would be moved.
    pending: u64,
    /// Of these, the ones that are due and would be delivered at once.
    ready: u64,
    /// Messages in flight, which would be moved if they become pending again.
    in_flight: u64,
    /// Dead letters that would be moved as such.
    dead: u64,
    lanes: Vec<Lane>,
}

#[derive(Debug, Serialize)]
struct Lane {
    lane: String,
    paused: bool,
    pending: u64,
    ready: u64,
    in_flight: u64,
    dead: u64,
}

impl From<LaneStatus> for Lane {
    fn from(status: LaneStatus) -> Self {
        let LaneStatus { lane, paused, pending, ready, in_flight, dead, .. } = status;
        Self { lane: lane.to_string(), paused, pending, ready, in_flight, dead }
    }
}

/// Looks at the source. The target is not even asked whether it is there.
pub(super) async fn print(source: &End, to: String, out: &Output) -> Result<(), Failure> {
    let lanes = source.lanes().await.map_err(|halt| match halt {
        Halt::Failed(failure) => failure,
        Halt::Again(words) => Failure::unreachable(words),
        Halt::Stopped => Failure::failed("stopped"),
    })?;
    let lanes: Vec<Lane> = lanes.into_iter().map(Lane::from).collect();
    let sum = |count: fn(&Lane) -> u64| lanes.iter().map(count).sum();
    let estimate = MoveEstimate {
        from: source.shown.clone(),
        to,
        dry_run: true,
        pending: sum(|lane| lane.pending),
        ready: sum(|lane| lane.ready),
        in_flight: sum(|lane| lane.in_flight),
        dead: sum(|lane| lane.dead),
        lanes,
    };
    out.answer(&estimate, |estimate| estimate.text(out))
}

impl MoveEstimate {
    fn text(&self, out: &Output) -> String {
        let mut rows = out.table(&["LANE", ">PENDING", ">READY", ">IN FLIGHT", ">DEAD", "PAUSED"]);
        let mut lanes: Vec<_> = self.lanes.iter().collect();
        lanes.sort_by_key(|lane| std::cmp::Reverse(lane.pending + lane.in_flight + lane.dead));
        for lane in lanes.iter().take(ROWS) {
            let numbers = [lane.pending, lane.ready, lane.in_flight, lane.dead].map(clock::grouped);
            let paused = if lane.paused { "paused" } else { "" };
            rows.row([output::short(&lane.lane)].into_iter().chain(numbers).chain([paused.into()]));
        }
        let mut text = rows.text();
        if lanes.len() > ROWS {
            text.push_str(&format!("… and {} lanes more: -o json has them\n", lanes.len() - ROWS));
        }
        let [pending, ready, in_flight, dead] =
            [self.pending, self.ready, self.in_flight, self.dead].map(clock::grouped);
        text.push_str(&format!(
            "\n{pending} would be moved from {} to {}, {ready} of them are due and go out at once\n",
            self.from, self.to
        ));
        if self.in_flight > 0 {
            text.push_str(&format!("{in_flight} are under way: those that come back would be moved, too\n"));
        }
        if self.dead > 0 {
            text.push_str(&format!("{dead} dead letters would be moved, too\n"));
        }
        text
    }
}
