//! A look over everything that waits at the source.

use std::{sync::atomic::Ordering, time::Duration};

use duly::{MessageId, Now, Query, Record, State};

use super::{end::Halt, finish::ParkedCheck, migration::Migration, parked};

/// Bytes of bodies moved at once, about; a single message may have more.
const BYTES: usize = 4 << 20;

/// Messages listed by one call, without bodies. It is large because a store may scan all messages for each page.
pub(super) const PAGE: usize = 50_000;

/// A batch is cancelled with an instant so long before it is read: longer than clocks of nodes may differ, and than a node may take
/// between reading its clock and acting.
const BEFORE_US: u64 = 1_000_000;

/// How often the parked copies are looked at during a pass, which may take hours: what ended at the source is to be withdrawn before
/// the source forgets it.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The same moment by the monotonic clock, and an earlier one by the wall.
fn a_while_before(now: Now) -> Now {
    Now::new(now.wall_micros().saturating_sub(BEFORE_US), now.mono())
}

impl Migration<'_> {
    /// Moves all pending messages of the source, by due time.
    pub(super) async fn pass(&mut self) -> Result<(), Halt> {
        self.report.passes += 1;
        self.report.kept.conflicts = 0;
        self.report.kept.reserved = 0;
        let mut query = Query { due_to: Some(parked::FIRST), limit: PAGE, ..Query::all(State::Pending) };
        loop {
            let page = self.source.list(&query).await?;
            let ids = page.records.into_iter().map(|record| record.message.id);
            // A dead letter that was replayed since its copy came to the target waits until that is withdrawn.
            let ids: Vec<_> = ids.filter(|id| !self.in_doubt.unfinished.has(id)).collect();
            let mut rest = ids.as_slice();
            while !rest.is_empty() {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Halt::Stopped);
                }
                if self.looked.elapsed() >= self.options.look_every {
                    self.finish_parked(ParkedCheck::Between).await?;
                }
                let asked = a_while_before(self.source.now());
                let may_come_late = self.may_come_late();
                let (records, later) = self.read(rest, State::Pending, self.options.batch).await?;
                rest = later;
                if !records.is_empty() {
                    self.move_pending(asked, records, may_come_late).await?;
                }
            }
            match page.next {
                // Messages that are due earlier were handled.
                Some(next) => (query.due_from, query.after) = (Some(next.0), Some(next)),
                None => return Ok(()),
            }
        }
    }

    /// Reads messages with their bodies, as many as are moved at once, at most `max`. Gives those that are still in `state`, and
    /// the rest.
    pub(super) async fn read<'b>(
        &mut self,
        mut ids: &'b [MessageId],
        state: State,
        max: usize,
    ) -> Result<(Vec<Record>, &'b [MessageId]), Halt> {
        let max = max.min(self.options.batch);
        let (mut records, mut bytes) = (Vec::new(), 0);
        while !ids.is_empty() && bytes < BYTES && records.len() < max {
            let room = self.bodies.min(max - records.len());
            let (some, later) = ids.split_at(ids.len().min(room));
            ids = later;
            let read = self.source.get(some).await?.into_iter().flatten();
            let read: Vec<_> = read.filter(|record| record.state == state).collect();
            let size: usize = read.iter().map(|record| record.message.body.len()).sum();
            records.extend(read);
            bytes += size;
            // Few of the large ones at once, many of the small ones.
            if size < BYTES / 4 {
                self.bodies = (self.bodies * 2).min(self.options.batch);
            } else if size > BYTES {
                self.bodies = (self.bodies / 2).max(1);
            }
        }
        Ok((records, ids))
    }
}
