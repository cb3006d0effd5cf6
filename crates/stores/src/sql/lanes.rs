//! The numbers of lanes. A lane's number follows from its name.
//!
//! A failover to a replica that is behind loses the latest rows of `duly_lane`. If the database counted lanes up, it would then give a
//! number out again that other nodes still use for another lane. So the number of a new lane is a hash of its name, and whoever gives
//! it a number gives it the same one. Lanes of stores that were made before have small numbers, and keep them. Topics without messages
//! are [forgotten](super::forget_lanes).

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::{Lane, store::StoreError};

use super::{
    SqlStore,
    connection::{Session, Statement},
    fault::Fault,
};
use crate::shared::lane::{lane_of, lane_text};

/// Lanes read or numbered by one statement.
const BATCH_MAX: usize = 100;
/// How many numbers are tried for a name whose hash another lane has, too.
const TRIES_MAX: i64 = 8;
/// Numbers by hash have this bit, and no higher one: times 256 they fit a `BIGINT`, and they are larger than any that was counted up.
pub(super) const HASHED: i64 = 1 << 53;

/// The number of a lane that has none yet.
fn number_of(name: &str) -> i64 {
    let digest = sha1_smol::Sha1::from(name).digest().bytes();
    let hash = digest[..8].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    (hash >> 11) as i64 | HASHED
}

/// Whether this is the row of a topic with the number that anybody would give it again.
pub(super) fn is_of_its_name(name: &[u8], number: i64) -> bool {
    name.first() == Some(&b'q') && std::str::from_utf8(name).is_ok_and(|name| number == number_of(name))
}

/// Cache of lane numbers.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<LaneCache>);

#[derive(Debug, Default)]
struct LaneCache {
    numbers: HashMap<String, i64>,
    names: HashMap<i64, String>,
    /// Learned since this node's last heartbeat, or before a failover: see [`SqlStore::confirm_lanes`].
    unconfirmed: BTreeSet<String>,
    /// The lanes without messages and counters when [`SqlStore::forget_lanes`] last checked them.
    bare: BTreeSet<i64>,
    /// The last number of the previous search.
    scanned_to: i64,
    /// The numbers of rows whose names are no lanes, as far as they were logged.
    unreadable: BTreeSet<i64>,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, LaneCache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, name: &str, number: i64) {
        let mut cache = self.lock();
        let before = cache.numbers.insert(name.to_owned(), number);
        if before == Some(number) {
            return;
        }
        if let Some(before) = before.filter(|before| cache.names.get(before).is_some_and(|of| of == name)) {
            tracing::warn!(lane = name, before, number, "lane number changed");
            cache.names.remove(&before);
        }
        cache.names.insert(number, name.to_owned());
        cache.unconfirmed.insert(name.to_owned());
    }

    /// The number of a lane that was asked for before.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.lock().numbers.get(name).copied()
    }

    /// The name of a lane that was asked for before.
    pub(super) fn name(&self, number: i64) -> Option<String> {
        self.lock().names.get(&number).cloned()
    }

    /// Number of known lanes.
    pub(super) fn len(&self) -> usize {
        self.lock().numbers.len()
    }

    /// Removes lanes that have no number any more.
    fn forget(&self, names: &[String]) {
        let mut cache = self.lock();
        for name in names {
            if let Some(number) = cache.numbers.remove(name)
                && cache.names.get(&number) == Some(name)
            {
                cache.names.remove(&number);
            }
        }
    }

    /// Forgets topics. Whoever needs one asks for it again, so that none is known for long that the database has not.
    pub(super) fn forget_topics(&self, but: &BTreeSet<&str>) {
        let LaneCache { numbers, names, unconfirmed, .. } = &mut *self.lock();
        numbers.retain(|name, number| {
            let is_used = but.contains(name.as_str()) || unconfirmed.contains(name);
            let stays = is_used || !is_of_its_name(name.as_bytes(), *number);
            if !stays && names.get(number) == Some(name) {
                names.remove(number);
            }
            stays
        });
    }

    /// The number from which the next search for lanes without messages starts.
    pub(super) fn scanned_to(&self) -> i64 {
        self.lock().scanned_to
    }

    /// Stores the lanes with numbers from `scanned_to` up to `to` that have neither messages nor counters. Returns those of them
    /// that had none the last time, either.
    pub(super) fn update_bare(&self, to: i64, bare: &BTreeSet<i64>) -> Vec<i64> {
        let cache = &mut *self.lock();
        let over = cache.bare.intersection(bare).copied().collect();
        cache.bare.retain(|number| *number <= cache.scanned_to || *number > to);
        cache.bare.extend(bare);
        cache.scanned_to = if to == i64::MAX { 0 } else { to };
        over
    }

    /// Forgets which lanes have no messages: another node removes them.
    pub(super) fn clear_bare(&self) {
        let mut cache = self.lock();
        cache.bare.clear();
        cache.scanned_to = 0;
    }

    /// The database has lost some of what it had committed: every lane must be confirmed.
    pub(super) fn unconfirm_all(&self) {
        let cache = &mut *self.lock();
        cache.unconfirmed = cache.numbers.keys().cloned().collect();
    }

    /// Lanes to confirm.
    pub(super) fn unconfirmed(&self) -> Vec<String> {
        self.lock().unconfirmed.iter().cloned().collect()
    }

    fn confirm(&self, names: &[String]) {
        let mut cache = self.lock();
        for name in names {
            cache.unconfirmed.remove(name);
        }
    }
}

impl SqlStore {
    /// Gives a number to each lane that has none.
    pub(super) async fn number_lanes(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<(), StoreError> {
        let new: BTreeSet<_> = names.into_iter().filter(|name| self.lanes.number(name).is_none()).collect();
        let new: Vec<_> = new.into_iter().collect();
        self.relearn(&new).await
    }

    pub(crate) async fn lane_number(&self, name: &str) -> Result<i64, StoreError> {
        self.number_lanes([name.to_owned()]).await?;
        self.lanes.number(name).ok_or_else(|| super::fault::garbled("a lane"))
    }

    /// The number of a lane to claim from. A queue gets a row with its first message: whoever may receive could otherwise fill the table
    /// with names. Without a row it is claimed from by the number that it would get: see [`forget_lanes`](super::forget_lanes).
    pub(crate) async fn claim_number(&self, lane: &Lane, name: &str) -> Result<i64, StoreError> {
        if matches!(lane, Lane::Sink(_)) {
            return self.lane_number(name).await;
        }
        if self.lanes.number(name).is_none() {
            self.missing(&[name.to_owned()]).await?;
        }
        Ok(self.lanes.number(name).unwrap_or_else(|| number_of(name)))
    }

    /// Asks the database for the numbers of these lanes, whatever is known of them, and gives numbers to those that have none there.
    /// The known lanes stay until there is an answer, because messages are inserted meanwhile.
    pub(super) async fn relearn(&self, names: &[String]) -> Result<(), StoreError> {
        for part in names.chunks(BATCH_MAX) {
            // Most often another node has given it a number.
            let mut missing = self.missing(part).await?;
            for tries in 0..=TRIES_MAX {
                if missing.is_empty() {
                    break;
                }
                let preferred_number = missing
                    .iter()
                    .map(|name| (name.clone(), self.preferred_number(name, tries)))
                    .collect::<Vec<_>>();
                self.transact(|borrowed| Box::pin(self.give_numbers(borrowed.session, &preferred_number)))
                    .await?;
                missing = self.missing(&missing).await?;
            }
            self.lanes.forget(&missing);
        }
        Ok(())
    }

    /// The number to try for a lane: that under which its messages wait, unless it is another's by now.
    fn preferred_number(&self, name: &str, tries: i64) -> i64 {
        match tries {
            0 => self.lanes.number(name).unwrap_or_else(|| number_of(name)),
            _ => number_of(name) + tries - 1,
        }
    }

    /// Learns the numbers of lanes. Returns those that have none.
    async fn missing(&self, names: &[String]) -> Result<Vec<String>, StoreError> {
        let learned = self.read(|borrowed| Box::pin(self.learn(borrowed.session, names))).await?;
        Ok(names.iter().filter(|name| !learned.contains(name)).cloned().collect())
    }

    /// Asks again for lanes that were learned before this node's latest heartbeat was committed, and puts back those that a failover
    /// lost. A failover later on that loses one of them loses that heartbeat as well, which is [noticed](Lanes::unconfirm_all).
    pub(super) async fn confirm_lanes(&self, names: Vec<String>) -> Result<(), StoreError> {
        if names.is_empty() {
            return Ok(());
        }
        if names.len() > BATCH_MAX {
            let kept: BTreeSet<_> = self
                .read(|borrowed| Box::pin(self.every_name(borrowed.session)))
                .await?
                .into_iter()
                .collect();
            let lost: Vec<_> = names.iter().filter(|name| !kept.contains(*name)).cloned().collect();
            self.relearn(&lost).await?;
        } else {
            self.relearn(&names).await?;
        }
        self.lanes.confirm(&names);
        Ok(())
    }

    async fn learn(&self, session: &mut Session, names: &[String]) -> Result<Vec<String>, Fault> {
        let mut select =
            Statement::new(self.dialect(), "SELECT lane_no, name FROM duly_lane WHERE name IN (");
        select.bind_all(names.iter().map(String::as_bytes)).push(")");
        let mut learned = Vec::new();
        for row in session.rows(select).await? {
            // It is one of those that were asked for.
            if let Ok(name) = String::from_utf8(row.bytes(1)?) {
                self.lanes.learn(&name, row.int(0)?);
                learned.push(name);
            }
        }
        Ok(learned)
    }

    /// Gives lanes these numbers, as far as they have none and the numbers are free.
    pub(super) async fn give_numbers(
        &self,
        session: &mut Session,
        lanes: &[(String, i64)],
    ) -> Result<(), Fault> {
        let mut insert = Statement::new(self.dialect(), "INSERT ");
        insert.push_as("IGNORE ", "").push("INTO duly_lane (lane_no, name) VALUES ");
        for (index, (name, number)) in lanes.iter().enumerate() {
            insert.push(if index == 0 { "(" } else { ", (" }).bind(*number).push(", ");
            insert.bind(name.as_bytes()).push(")");
        }
        insert.push_as("", " ON CONFLICT DO NOTHING");
        session.run(insert).await?;
        Ok(())
    }

    async fn every_name(&self, session: &mut Session) -> Result<Vec<String>, Fault> {
        let lanes = self.every_lane(session).await?;
        Ok(lanes.into_iter().map(|(_, lane, _)| lane_text(&lane)).collect())
    }

    /// The lane of a row. Nothing if its name is none, because somebody changed it: that is counted as damaged and logged once, and keeps no
    /// other lane from anything.
    pub(super) fn lane_in(&self, number: i64, name: &[u8]) -> Option<Lane> {
        let lane = lane_of(name);
        if lane.is_none() && self.lanes.lock().unreadable.insert(number) {
            let name = String::from_utf8_lossy(name);
            tracing::error!(number, %name, "lane name unreadable; its row is passed over");
            self.writes.count_damaged(1);
        }
        lane
    }

    /// Every lane that ever was: number, lane, whether it is paused.
    pub(super) async fn every_lane(&self, session: &mut Session) -> Result<Vec<(i64, Lane, bool)>, Fault> {
        let select =
            Statement::new(self.dialect(), "SELECT lane_no, name, paused FROM duly_lane ORDER BY lane_no");
        let mut lanes = Vec::new();
        for row in session.rows(select).await? {
            let (number, name) = (row.int(0)?, row.bytes(1)?);
            let Some(lane) = self.lane_in(number, &name) else { continue };
            self.lanes.learn(&lane_text(&lane), number);
            lanes.push((number, lane, row.int(2)? != 0));
        }
        Ok(lanes)
    }

    pub(super) async fn pause(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.check_open()?;
        let name = lane_text(lane);
        for _ in 0..TRIES_MAX {
            // By name, and not by what is known of it: after a failover the number may be another lane's, and the row gone.
            self.relearn(std::slice::from_ref(&name)).await?;
            if self.transact(|borrowed| Box::pin(self.pause_row(borrowed.session, &name, paused))).await? {
                return Ok(());
            }
        }
        Err(super::fault::garbled("a lane"))
    }

    /// Returns whether there was a row to write to: one without messages may have been forgotten a moment ago.
    async fn pause_row(&self, session: &mut Session, name: &str, paused: bool) -> Result<bool, Fault> {
        let mut update = Statement::new(self.dialect(), "UPDATE duly_lane SET paused = ");
        update.bind(i64::from(paused)).push(" WHERE name = ").bind(name.as_bytes());
        session.run(update).await?;
        let mut select = Statement::new(self.dialect(), "SELECT paused FROM duly_lane WHERE name = ");
        select.bind(name.as_bytes());
        Ok(!session.rows(select).await?.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_by_hash_never_changes_and_fits_with_its_shard() {
        assert_eq!(number_of("qwork"), 16_075_156_859_008_227);
        for name in ["q", "sorders", "q\u{65e5}"] {
            let queue = super::super::row::queue_no(number_of(name) + TRIES_MAX, 255);
            assert!(queue > HASHED && queue < i64::MAX / 2, "{name}: {queue}");
        }
    }

    #[test]
    fn what_is_learned_anew_replaces_what_was_known() {
        let lanes = Lanes::default();
        lanes.learn("qa", 1);
        lanes.learn("qb", 2);
        lanes.confirm(&lanes.unconfirmed());
        lanes.learn("qa", 1);
        assert_eq!(lanes.unconfirmed(), [""; 0]);
        lanes.learn("qa", 2);
        assert_eq!(
            (lanes.number("qa"), lanes.name(1), lanes.name(2).as_deref()),
            (Some(2), None, Some("qa"))
        );
        lanes.forget(&["qb".into()]);
        assert_eq!((lanes.number("qb"), lanes.name(2).as_deref()), (None, Some("qa")));
        lanes.unconfirm_all();
        assert_eq!(lanes.unconfirmed(), ["qa"]);
    }
}
