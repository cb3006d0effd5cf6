//! A store in a database, as somebody asks for it.

use std::sync::Arc;

use duly_core::{Clock, ErrorCode, Invalid, Secret, store::StoreError};

use super::{Options, Server, SqlStore, check_address};
use crate::{NodeOptions, OpenStore};

/// Which database, and what the store there is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlConfig {
    /// Of which make.
    pub server: Server,
    /// Where it is: `mysql://user@host:3306/database` or `postgres://user@host:5432/database`.
    pub url: Secret,
    /// How many parts the store has. Kept in the database once the store is made; another number is refused.
    pub shards: u16,
    /// How many connections to it this node has at most.
    pub connections: u32,
    /// Whether it may be one that loses messages.
    pub allow_volatile: bool,
}

impl SqlConfig {
    /// The usual settings of a store in the database at `url`.
    pub fn new(server: Server, url: impl Into<String>) -> Self {
        let Options { shards, connections, allow_volatile, .. } = Options::new(0);
        Self { server, url: Secret::new(url), shards, connections, allow_volatile }
    }

    /// The same in a database of its own on this machine.
    pub fn of(server: Server) -> Self {
        Self::new(
            server,
            match server {
                Server::Mysql => "mysql://duly@127.0.0.1:3306/duly",
                Server::Postgres => "postgres://duly@127.0.0.1:5432/duly",
            },
        )
    }

    /// Where it is, without its password.
    pub fn shown(&self) -> String {
        self.url.shown()
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let refused = |detail: String| Invalid::new(ErrorCode::BadAddress, "store", detail);
        let named = check_address(self.url.reveal()).map_err(refused)?;
        if named == self.server {
            return Ok(());
        }
        Err(refused(format!("this is an address of {named}, and {} was asked for", self.server)))
    }

    pub(crate) async fn exists(&self) -> Result<bool, StoreError> {
        SqlStore::is_at(self.url.reveal()).await
    }

    pub(crate) fn options(&self, node: NodeOptions) -> Options {
        Options {
            shards: self.shards,
            retention: node.retention.span,
            retention_max: node.retention.max,
            limits: node.limits,
            connections: self.connections,
            allow_volatile: self.allow_volatile,
            node: node.name,
            lease: node.lease,
            ..Options::new(node.instance)
        }
    }

    pub(crate) async fn open(
        &self,
        node: NodeOptions,
        machine: Arc<dyn Clock>,
    ) -> Result<OpenStore, StoreError> {
        let (store, clock) = SqlStore::join(self.url.reveal(), self.options(node), machine).await?;
        Ok(OpenStore::new(store, Arc::new(clock)))
    }
}

impl Server {
    /// The word that the configuration uses, and that its addresses begin with.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) fn backup(self) -> &'static str {
        match self {
            Self::Mysql => {
                "the messages are in MySQL: back that up by its own means, such as mysqldump --single-transaction"
            }
            Self::Postgres => {
                "the messages are in PostgreSQL: back that up by its own means, such as pg_dump"
            }
        }
    }
}
