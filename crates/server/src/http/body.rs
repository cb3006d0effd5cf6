//! Reading what a client sends: bounded in bytes and in time.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::{
    app::App,
    fault::{Answer, Fault},
};

/// A body up to this size needs no share of the memory set aside for bodies.
const SMALL: usize = 16 << 10;
/// A text may be written with six bytes for one: `\u0001`.
const ESCAPED: usize = 6;
/// What a request may have besides the body of its message.
const AROUND: usize = 512 << 10;

/// The largest request that can hold a message within the limits.
pub(super) fn request_max(app: &App) -> usize {
    app.limits.body_bytes_max.saturating_mul(ESCAPED).saturating_add(AROUND)
}

/// Reads the whole body.
pub(super) async fn whole(app: &App, body: Body) -> Answer<Bytes> {
    match timeout(app.http.body_timeout, gather(app, body)).await {
        Ok(bytes) => bytes,
        Err(_) => Err(late(app)),
    }
}

pub(super) fn late(app: &App) -> Fault {
    let detail = format!(
        "the body was not there within {:?}; nothing was done, send it again in one go",
        app.http.body_timeout
    );
    Fault::new("body_timeout", detail)
}

pub(super) fn broken(error: &axum::Error) -> Fault {
    Fault::new("half_a_body", format!("the body ended before its time ({error}); send it again"))
}

async fn gather(app: &App, mut body: Body) -> Answer<Bytes> {
    let max = request_max(app);
    let mut first = Bytes::new();
    let mut gathered = BytesMut::new();
    let mut share: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        let len = first.len() + gathered.len() + data.len();
        if len > max {
            let detail = format!("the request has more than {max} bytes; send larger things by reference");
            return Err(Fault::new("body_too_large", detail));
        }
        if len > SMALL {
            let more = data.len().max(if share.is_none() { len } else { 0 });
            let taken = claim(app, more)?;
            match &mut share {
                Some(share) => share.merge(taken),
                None => share = Some(taken),
            }
        }
        // Most bodies come in one piece: they are not copied.
        if first.is_empty() && gathered.is_empty() {
            first = data;
        } else {
            gathered.extend_from_slice(&std::mem::take(&mut first));
            gathered.extend_from_slice(&data);
        }
    }
    Ok(if gathered.is_empty() { first } else { gathered.freeze() })
}

fn claim(app: &App, bytes: usize) -> Answer<OwnedSemaphorePermit> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Arc::clone(&app.body_bytes)
        .try_acquire_many_owned(bytes)
        .map_err(|_| Fault::new("busy", "many large bodies are being read at once; try again in a second"))
}

/// Reads a JSON body.
pub(super) async fn json<T: DeserializeOwned>(app: &App, body: Body) -> Answer<T> {
    parse(&whole(app, body).await?)
}

/// Reads a JSON body; none at all means the defaults.
pub(super) async fn json_or_default<T: DeserializeOwned + Default>(app: &App, body: Body) -> Answer<T> {
    let bytes = whole(app, body).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) { Ok(T::default()) } else { parse(&bytes) }
}

/// Reads JSON, and says where the fault is if there is one.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    // Keeping track of the path costs: it is done only when there is something to tell.
    serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))
}

fn explain<T: DeserializeOwned>(bytes: &[u8]) -> Fault {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut input) {
        Ok(_) => {
            let detail = match input.end() {
                Err(error) => format!("{error}; send one JSON value only"),
                Ok(()) => "it cannot be read".into(),
            };
            Fault::new("bad_json", detail)
        }
        Err(error) => {
            let path = error.path().to_string();
            let inner = error.into_inner();
            match inner.classify() {
                serde_json::error::Category::Data => {
                    // At the root the fault is the message itself: a missing field, or no object at all.
                    let path = if path == "." { String::new() } else { path };
                    let mut fault = Fault::new("bad_field", inner.to_string());
                    if !path.is_empty() {
                        fault = Fault::at("bad_field", path, inner.to_string());
                    }
                    fault
                }
                _ => Fault::new("bad_json", format!("{inner}; send JSON, UTF-8")),
            }
        }
    }
}
