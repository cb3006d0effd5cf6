//! Whether there is a store, asked by somebody who would not make one.

use duly_core::store::{StoreError, StoreErrorKind};

use super::{
    Options, SqlStore,
    address::Address,
    connection::{Dialect, Link, Statement},
    fault::Fault,
    open::connect,
};

impl SqlStore {
    /// Whether a store was ever made in the database at `url`. Changes nothing.
    pub async fn is_at(url: &str) -> Result<bool, StoreError> {
        let address =
            Address::parse(url).map_err(|what| StoreError::new(StoreErrorKind::Unavailable, what))?;
        let (link, _) = connect(address, 1, Options::new(0).idle_max);
        let found = has_table(&link).await;
        link.close().await;
        Ok(found?)
    }
}

async fn has_table(link: &Link) -> Result<bool, Fault> {
    let select = Statement::new(
        link.dialect(),
        match link.dialect() {
            Dialect::Mysql => {
                "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'duly_store'"
            }
            Dialect::Postgres => {
                "SELECT 1 FROM information_schema.tables WHERE table_schema = ANY (current_schemas(false)) \
                 AND table_name = 'duly_store'"
            }
        },
    );
    Ok(!link.session().await?.rows(select).await?.is_empty())
}
