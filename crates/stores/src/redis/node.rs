//! One node at a time: a key with a short life that the node which has the store open keeps alive.

use std::time::Duration;

use duly_core::store::{StoreError, StoreErrorKind};
use redis::Script;

use super::{
    Options,
    fault::sorted,
    link::{Link, connect},
};

/// The right of one node to have the store open.
pub struct NodeKey {
    link: Link,
    key: String,
    holder: String,
    hold: Script,
    release: Script,
}

/// Who has the store open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// This node.
    Mine,
    /// Another one, of this name.
    ByAnother(String),
}

impl NodeKey {
    /// How long the key lives if nobody keeps it alive: after a crash, the next start waits for so long.
    pub const LIFE: Duration = Duration::from_secs(5);

    /// The key of the store that these options name, for the node `name`. Nothing is taken yet.
    pub async fn new(url: &str, options: &Options, name: &str) -> Result<Self, StoreError> {
        if let Some(fault) = options.fault() {
            return Err(StoreError::new(StoreErrorKind::Unavailable, fault));
        }
        Ok(Self {
            link: connect(url).await?,
            key: node_key(&options.prefix),
            holder: format!("{:016x} {name}", options.instance),
            hold: Script::new(include_str!("scripts/hold.lua")),
            release: Script::new(include_str!("scripts/release.lua")),
        })
    }

    /// Takes the key or keeps it alive, unless another node has it.
    pub async fn hold(&self) -> Result<Held, StoreError> {
        let life = u64::try_from(Self::LIFE.as_millis()).unwrap_or(u64::MAX);
        let mut call = self.hold.key(&self.key);
        let holder: String = call
            .arg(&self.holder)
            .arg(life)
            .invoke_async(&mut self.link.clone())
            .await
            .map_err(|error| sorted(&error))?;
        if holder == self.holder {
            return Ok(Held::Mine);
        }
        Ok(Held::ByAnother(name_in(&holder).to_owned()))
    }

    /// Lets it go, so that the next node need not wait.
    pub async fn release(&self) -> Result<(), StoreError> {
        let mut call = self.release.key(&self.key);
        let gone: u64 = call
            .arg(&self.holder)
            .invoke_async(&mut self.link.clone())
            .await
            .map_err(|error| sorted(&error))?;
        tracing::debug!(gone, "let go of the store");
        Ok(())
    }
}

/// The key of the node that has a store open.
pub(super) fn node_key(prefix: &str) -> String {
    format!("duly:{{{prefix}}}:node")
}

/// The name in what stands there.
pub(super) fn name_in(holder: &str) -> &str {
    holder.split_once(' ').map_or(holder, |(_, name)| name)
}
