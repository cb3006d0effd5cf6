//! Opens the store in MySQL with its index in Redis.

use std::sync::Arc;

use duly_core::{
    Clock, Now,
    store::{StoreError, StoreErrorKind},
};

use super::{Health, Index, Options, RedisAndMysqlStore, reconcile::Reconciler};
use crate::{ServerClock, SqlStore, shared::hints::HintListener};

impl RedisAndMysqlStore {
    /// Opens the store in the MySQL at `mysql`, with its index in the Redis at `redis`, makes what is not there, and becomes one of its
    /// nodes. Redis may be unreachable.
    ///
    /// Time goes by the clock that is given here, and that is that of MySQL: give it to whoever uses the store. `machine` is this
    /// machine's.
    pub async fn join(
        redis: &str,
        mysql: &str,
        options: Options,
        machine: Arc<dyn Clock>,
    ) -> Result<(Self, ServerClock), StoreError> {
        let (sql, clock) = SqlStore::join_with(mysql, options.sql.clone(), machine, true).await?;
        let store = Self::beside(sql, redis, options)?;
        store.tend(clock.now()).await?;
        store.update_index(clock.now()).await;
        Ok((store, clock))
    }

    /// The same, when the caller's time is its own and the same for all who share the store, as in tests.
    pub async fn open(redis: &str, mysql: &str, options: Options, now: Now) -> Result<Self, StoreError> {
        let sql = SqlStore::open_with(mysql, options.sql.clone(), now, true).await?;
        let store = Self::beside(sql, redis, options)?;
        store.tend(now).await?;
        store.update_index(now).await;
        Ok(store)
    }

    fn beside(sql: SqlStore, redis: &str, options: Options) -> Result<Self, StoreError> {
        let index = Index::new(redis, sql.generation(), options.sql.shards).map_err(|what| {
            let what = format!("this is not an address of Redis: {what}");
            StoreError::new(StoreErrorKind::Unavailable, what)
        })?;
        Ok(Self {
            sql,
            index,
            options,
            health: Health::default(),
            reconciler: Reconciler::default(),
            hint_listener: HintListener::default(),
        })
    }
}
