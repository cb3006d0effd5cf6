//! Batches of rows for one transaction each. One that the database refuses is halved, so that a single row keeps no other back.

use std::collections::VecDeque;

use duly_core::store::StoreError;

/// Refusals until the rest is left for another time: enough to find one row among five hundred.
const REFUSALS_MAX: usize = 20;

/// What is still to be done.
pub(super) struct Batches<T> {
    waiting: VecDeque<Vec<T>>,
    refusals: usize,
    error: Option<StoreError>,
}

impl<T> Batches<T> {
    pub(super) fn of(items: impl IntoIterator<Item = T>, len_max: usize) -> Self {
        let mut waiting: VecDeque<Vec<T>> = VecDeque::new();
        for item in items {
            match waiting.back_mut() {
                Some(batch) if batch.len() < len_max => batch.push(item),
                _ => waiting.push_back(vec![item]),
            }
        }
        Self { waiting, refusals: 0, error: None }
    }

    /// The next batch; `None` if all is done, or too much was refused.
    pub(super) fn next(&mut self) -> Option<Vec<T>> {
        if self.refusals >= REFUSALS_MAX { None } else { self.waiting.pop_front() }
    }

    /// The transaction of this batch failed. Its halves come after all that was not tried yet. Returns the error if it is not about
    /// the rows: the database did not answer, and another batch would fare no better.
    pub(super) fn failed(&mut self, mut batch: Vec<T>, error: StoreError) -> Result<(), StoreError> {
        if !matches!(error.cause::<sqlx::Error>(), Some(sqlx::Error::Database(_))) {
            return Err(error);
        }
        self.refusals += 1;
        self.error = Some(error);
        if batch.len() > 1 {
            let second = batch.split_off(batch.len() / 2);
            self.waiting.extend([batch, second]);
        }
        Ok(())
    }

    /// The last refusal, if there was one.
    pub(super) fn outcome(self) -> Result<(), StoreError> {
        self.error.map_or(Ok(()), Err)
    }
}
