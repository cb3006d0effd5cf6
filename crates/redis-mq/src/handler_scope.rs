//! Whether a call comes from a handler.

tokio::task_local! {
    /// In a handler's task: whose handler it is.
    static HANDLER_OF: u64;
}

/// Runs the future of a handler of this `RedisMq`, so that the library knows where it is called from.
pub(crate) async fn enter<T>(mq: u64, work: impl Future<Output = T>) -> T {
    HANDLER_OF.scope(mq, work).await
}

/// Whether this is called in a handler of this `RedisMq`. A task that the handler started, or a thread that it blocks, is not known to be.
pub(crate) fn is_inside(mq: u64) -> bool {
    HANDLER_OF.try_with(|of| *of == mq).unwrap_or(false)
}
