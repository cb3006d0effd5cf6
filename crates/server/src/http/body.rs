//! Reading what a client sends: bounded in bytes and in time.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use duly::{ErrorCode, Limits};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    app::App,
    fault::{Answer, Fault},
};
use crate::wire::{is_object, plain};

/// The room for bodies, unless one alone may be larger.
const ROOM_MIN: usize = 128 << 20;
/// So much of a body that was refused is read on.
const DRAINED_MAX: usize = 64 << 20;
/// A body up to this size needs no share of the memory set aside for bodies.
const SMALL: usize = 16 << 10;
/// A text may be written with six bytes for one: `\u0001`.
const ESCAPED: usize = 6;
/// What a request may have besides the body of its message.
const AROUND: usize = 512 << 10;

/// The largest request that can hold a message within the limits.
pub(super) fn request_max(limits: &Limits) -> usize {
    limits.body_bytes_max.saturating_mul(ESCAPED).saturating_add(AROUND)
}

/// Bytes of larger request bodies in memory at the same time, over all connections: the largest must fit, and not alone.
pub(super) fn room(limits: &Limits) -> usize {
    request_max(limits).saturating_mul(2).clamp(ROOM_MIN, Semaphore::MAX_PERMITS)
}

/// A part of the [`room`], for as long as it is held. Small bodies need none.
#[derive(Default)]
pub(super) struct Share(Option<OwnedSemaphorePermit>);

impl Share {
    /// Makes it large enough for a body of `bytes`.
    pub(super) fn grow(&mut self, app: &App, bytes: usize) -> Answer<()> {
        let held = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes <= SMALL || bytes <= held {
            return Ok(());
        }
        let taken = Arc::clone(&app.body_bytes)
            .try_acquire_many_owned(u32::try_from(bytes - held).unwrap_or(u32::MAX))
            .map_err(|_| {
                Fault::new(ErrorCode::Busy, "many large bodies are in memory at once; try again in a second")
            })?;
        match &mut self.0 {
            Some(held) => held.merge(taken),
            None => self.0 = Some(taken),
        }
        Ok(())
    }

    /// Keeps what a body of `bytes` needs, and gives the rest.
    pub(super) fn split(&mut self, bytes: usize) -> Self {
        let keep = if bytes <= SMALL { 0 } else { bytes };
        let Some(held) = &mut self.0 else { return Self::default() };
        Self(held.split(held.num_permits().saturating_sub(keep)))
    }
}

/// Reads the whole body.
async fn whole(app: &App, mut body: Body) -> Answer<(Bytes, Share)> {
    let read = async {
        let gathered = gather(app, &mut body).await;
        if gathered.is_err() {
            drain(&mut body).await;
        }
        gathered
    };
    timeout(app.http.body_timeout, read).await.unwrap_or_else(|_| Err(late(app)))
}

/// Reads on without keeping anything: who still writes when the connection is closed never gets to read the answer.
pub(super) async fn drain(body: &mut Body) {
    let mut left = DRAINED_MAX;
    while left > 0
        && let Some(Ok(frame)) = body.frame().await
    {
        left = left.saturating_sub(frame.data_ref().map_or(1, Bytes::len).max(1));
    }
}

pub(super) fn late(app: &App) -> Fault {
    let detail = format!(
        "the body was not there within {:?}; nothing was done, send it again in one go",
        app.http.body_timeout
    );
    Fault::new(ErrorCode::BodyTimeout, detail)
}

pub(super) fn broken(error: &axum::Error) -> Fault {
    Fault::new(ErrorCode::HalfABody, format!("the body ended before its time ({error}); send it again"))
}

/// A client that waits for `100 Continue` before it sends is told at once that its body is too large. What it has to say of
/// a batch has no limit.
pub(super) fn expected(app: &App, path: &str, headers: &HeaderMap) -> Answer<()> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let waits = text(header::EXPECT).is_some_and(|expect| expect.eq_ignore_ascii_case("100-continue"));
    let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    let max = request_max(&app.limits);
    if waits && path != super::batch::PATH && length.is_some_and(|length| length > max as u64) {
        return Err(too_large(max));
    }
    Ok(())
}

fn too_large(max: usize) -> Fault {
    let detail = format!("the request has more than {max} bytes; send larger things by reference");
    Fault::new(ErrorCode::BodyTooLarge, detail)
}

async fn gather(app: &App, body: &mut Body) -> Answer<(Bytes, Share)> {
    let max = request_max(&app.limits);
    let mut first = Bytes::new();
    let mut gathered = BytesMut::new();
    let mut share = Share::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        let len = first.len() + gathered.len() + data.len();
        if len > max {
            return Err(too_large(max));
        }
        share.grow(app, len)?;
        // Most bodies come in one piece: they are not copied.
        if first.is_empty() && gathered.is_empty() {
            first = data;
        } else {
            gathered.extend_from_slice(&std::mem::take(&mut first));
            gathered.extend_from_slice(&data);
        }
    }
    Ok((if gathered.is_empty() { first } else { gathered.freeze() }, share))
}

/// Reads a JSON body.
pub(super) async fn json<T: DeserializeOwned>(app: &App, body: Body) -> Answer<T> {
    json_with_share(app, body).await.map(|(value, _)| value)
}

/// Reads a JSON body that stays in memory for longer, and gives its share with it.
pub(super) async fn json_with_share<T: DeserializeOwned>(app: &App, body: Body) -> Answer<(T, Share)> {
    let (bytes, share) = whole(app, body).await?;
    Ok((parse(&bytes)?, share))
}

/// Reads a JSON body; none at all means the defaults.
pub(super) async fn json_or_default<T: DeserializeOwned + Default>(app: &App, body: Body) -> Answer<T> {
    let (bytes, _share) = whole(app, body).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) { Ok(T::default()) } else { parse(&bytes) }
}

/// Reads a JSON object, and says where the fault is if there is one.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    // Keeping track of the path costs: it is done only when there is something to tell.
    let value = serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))?;
    // Serde would take an array for the fields in their order.
    if is_object(bytes) { Ok(value) } else { Err(no_object()) }
}

fn no_object() -> Fault {
    Fault::new(
        ErrorCode::BadField,
        "an object in braces is expected here, such as {\"topic\":\"order\",\"body\":\"hello\"}",
    )
}

fn explain<T: DeserializeOwned>(bytes: &[u8]) -> Fault {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut input) {
        Ok(_) => {
            let detail = match input.end() {
                Err(error) => format!("{}; send one JSON value only", plain(&error.to_string())),
                Ok(()) => "it cannot be read".into(),
            };
            Fault::new(ErrorCode::BadJson, detail)
        }
        Err(error) => {
            let path = error.path().to_string();
            let inner = error.into_inner();
            match inner.classify() {
                serde_json::error::Category::Data if !is_object(bytes) => no_object(),
                serde_json::error::Category::Data => {
                    // At the root the fault is the message itself: a missing field, or no object at all.
                    let path = if path == "." { String::new() } else { path };
                    let detail = plain(&inner.to_string());
                    if path.is_empty() {
                        Fault::new(ErrorCode::BadField, detail)
                    } else {
                        Fault::at(ErrorCode::BadField, path, detail)
                    }
                }
                _ => {
                    Fault::new(ErrorCode::BadJson, format!("{}; send JSON, UTF-8", plain(&inner.to_string())))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_body_fits_into_the_room_for_bodies() {
        for body_bytes_max in [1, 1 << 20, 32 << 20, usize::MAX] {
            let limits = Limits { body_bytes_max, ..Limits::default() };
            assert!(room(&limits) >= request_max(&limits).min(Semaphore::MAX_PERMITS), "{body_bytes_max}");
        }
    }
}
