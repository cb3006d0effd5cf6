//! The numbers of lanes. A lane that was ever used keeps its number.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::{Lane, store::StoreError};

use super::{
    SqlStore,
    fault::Fault,
    link::{Session, Statement},
    work::{look, transact},
};
use crate::server::lane::{lane_of, lane_text};

/// Those that this process has asked for.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    numbers: HashMap<String, i64>,
    names: HashMap<i64, String>,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, name: &str, number: i64) {
        let mut known = self.lock();
        known.numbers.insert(name.to_owned(), number);
        known.names.insert(number, name.to_owned());
    }

    /// The number of a lane that was asked for before.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.lock().numbers.get(name).copied()
    }

    /// The name of a lane that was asked for before.
    pub(super) fn name(&self, number: i64) -> Option<String> {
        self.lock().names.get(&number).cloned()
    }
}

impl SqlStore {
    /// Sees to it that lanes have numbers.
    pub(super) async fn number_lanes(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<(), StoreError> {
        let new: BTreeSet<_> = names.into_iter().filter(|name| self.lanes.number(name).is_none()).collect();
        let new: Vec<_> = new.into_iter().collect();
        for part in new.chunks(100) {
            // Most often somebody else has given it a number.
            look!(self, |session| self.learn(&mut session, part))?;
            let unknown: Vec<_> = part.iter().filter(|name| self.lanes.number(name).is_none()).collect();
            if !unknown.is_empty() {
                transact!(self, |session| self.give_numbers(&mut session, &unknown))?;
                look!(self, |session| self.learn(&mut session, part))?;
            }
        }
        Ok(())
    }

    pub(crate) async fn lane_number(&self, name: &str) -> Result<i64, StoreError> {
        self.number_lanes([name.to_owned()]).await?;
        self.lanes.number(name).ok_or_else(|| super::fault::garbled("a lane"))
    }

    async fn learn(&self, session: &mut Session, names: &[String]) -> Result<(), Fault> {
        let mut select =
            Statement::new(self.dialect(), "SELECT lane_no, name FROM duly_lane WHERE name IN (");
        select.bind_all(names.iter().map(String::as_bytes)).push(")");
        for row in session.rows(select).await? {
            self.lanes.learn(&name_in(row.bytes(1)?)?, row.int(0)?);
        }
        Ok(())
    }

    async fn give_numbers(&self, session: &mut Session, names: &[&String]) -> Result<(), Fault> {
        let mut insert = Statement::new(self.dialect(), "INSERT ");
        insert.push_as("IGNORE ", "").push("INTO duly_lane (name) VALUES ");
        for (place, name) in names.iter().enumerate() {
            insert.push(if place == 0 { "(" } else { ", (" }).bind(name.as_bytes()).push(")");
        }
        insert.push_as("", " ON CONFLICT (name) DO NOTHING");
        session.run(insert).await?;
        Ok(())
    }

    /// Every lane that ever was: number, lane, whether it is paused.
    pub(super) async fn every_lane(&self, session: &mut Session) -> Result<Vec<(i64, Lane, bool)>, Fault> {
        let select =
            Statement::new(self.dialect(), "SELECT lane_no, name, paused FROM duly_lane ORDER BY lane_no");
        let mut lanes = Vec::new();
        for row in session.rows(select).await? {
            let (number, name) = (row.int(0)?, name_in(row.bytes(1)?)?);
            self.lanes.learn(&name, number);
            let lane = lane_of(name.as_bytes()).ok_or_else(|| Fault::garbled("a lane"))?;
            lanes.push((number, lane, row.int(2)? != 0));
        }
        Ok(lanes)
    }

    pub(super) async fn pause(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.check_open()?;
        let number = self.lane_number(&lane_text(lane)).await?;
        let set = |paused: bool| {
            let mut update = Statement::new(self.dialect(), "UPDATE duly_lane SET paused = ");
            update.bind(i64::from(paused)).push(" WHERE lane_no = ").bind(number);
            update
        };
        transact!(self, |session| session.run(set(paused)))?;
        Ok(())
    }
}

fn name_in(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|_| Fault::garbled("a lane"))
}
