//! Recognises calls made from a handler.

tokio::task_local! {
    /// In a handler's task: the `Streams` of the handler.
    static HANDLER_OF: u64;
}

/// Runs the future of a handler so that [`is_inside`] recognises it.
pub(crate) async fn enter<T>(streams: u64, work: impl Future<Output = T>) -> T {
    HANDLER_OF.scope(streams, work).await
}

/// Whether this is called in a handler of this `Streams`. A task that the handler spawned, or a thread that it blocks,
/// is not recognised.
pub(crate) fn is_inside(streams: u64) -> bool {
    HANDLER_OF.try_with(|of| *of == streams).unwrap_or(false)
}
