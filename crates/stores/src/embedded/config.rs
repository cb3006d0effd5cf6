//! A store in a folder, as somebody asks for it.

use std::{path::PathBuf, sync::Arc};

use duly_core::{Clock, store::StoreError};

use super::{EmbeddedStore, Options};
use crate::{NodeOptions, OpenStore};

/// A folder of this machine. One process at a time has it open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedConfig {
    /// Where it is. Made if it is not there.
    pub folder: PathBuf,
}

impl EmbeddedConfig {
    /// The store in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    pub(crate) fn exists(&self) -> bool {
        EmbeddedStore::is_in(&self.folder)
    }

    pub(crate) async fn open(
        &self,
        node: NodeOptions,
        machine: Arc<dyn Clock>,
    ) -> Result<OpenStore, StoreError> {
        let options = Options {
            retention: node.retention.span,
            retention_max: node.retention.max,
            pending_max: node.limits.pending_max,
            ..Options::default()
        };
        let store = EmbeddedStore::open(&self.folder, options, machine.now()).await?;
        Ok(OpenStore::new(store, machine))
    }
}
