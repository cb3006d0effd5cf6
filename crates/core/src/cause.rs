//! The cause of an error: that of another library.

use std::{any::type_name, error::Error, fmt, sync::Arc};

/// The error of another library (`std::io::Error`, `redis::RedisError`, `sqlx::Error`) that caused an error of Duly.
///
/// One rule for every error with a cause: **`Display` is complete**, one line with the text of the cause, because logs
/// and HTTP answers show `Display` alone. So that a chain prints nothing twice, the `Display` of a `Cause` is the name
/// of its type, and the chain ends with it. [`downcast_ref`](Self::downcast_ref) gives the error itself.
///
/// ```
/// use duly_core::{Cause, store::{StoreError, StoreErrorKind}};
/// use std::error::Error as _;
///
/// let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
/// let what = format!("writing the journal failed: {full}");
/// let error = StoreError::new(StoreErrorKind::Full, what).with_source(full);
/// let cause = error.source().and_then(|source| source.downcast_ref::<Cause>()).unwrap();
/// assert_eq!(cause.downcast_ref::<std::io::Error>().unwrap().kind(), std::io::ErrorKind::StorageFull);
/// ```
#[derive(Clone)]
pub struct Cause {
    error: Arc<dyn Error + Send + Sync>,
    type_name: &'static str,
}

impl Cause {
    /// This error as a cause.
    pub fn new<E: Error + Send + Sync + 'static>(error: E) -> Self {
        Self { error: Arc::new(error), type_name: type_name::<E>() }
    }

    /// The error itself.
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }

    /// The error itself, if it is of this type.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl Error for Cause {}
