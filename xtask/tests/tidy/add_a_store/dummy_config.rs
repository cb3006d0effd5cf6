//! A store that a test adds.

use std::{path::PathBuf, sync::Arc};

use duly_core::{Clock, store::StoreError};

use super::{DummyStore, Options};
use crate::{NodeOptions, OpenStore};

/// Its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DummyConfig {
    /// Where it would be.
    pub folder: PathBuf,
}

impl DummyConfig {
    pub(crate) fn exists(&self) -> bool {
        false
    }

    pub(crate) async fn open(
        &self,
        node: NodeOptions,
        machine: Arc<dyn Clock>,
    ) -> Result<OpenStore, StoreError> {
        let pending_max = node.limits.pending_max;
        let store = DummyStore::with(Options { pending_max, ..Options::default() });
        Ok(OpenStore::new(store, machine))
    }
}
