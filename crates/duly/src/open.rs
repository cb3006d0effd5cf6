//! Opening the embedded store.

use std::{path::Path, sync::Arc};

use duly_core::{Clock, Limits, Store};
use duly_stores::{EmbeddedStore, embedded};

use crate::Error;

/// The store that lives in a folder of this machine.
pub(crate) async fn embedded(
    folder: &Path,
    limits: &Limits,
    clock: &dyn Clock,
) -> Result<Arc<dyn Store>, Error> {
    let options = embedded::Options { pending_max: limits.pending_max, ..embedded::Options::default() };
    Ok(Arc::new(EmbeddedStore::open(folder, options, clock.now()).await?))
}
