//! Classifies answers.

use std::time::Duration;

use bytes::Bytes;
use duly_core::{Clock, Monotonic, Timestamp};
use http::{HeaderMap, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::config::Permanent;

/// Bytes of an answer that are read; the rest is dropped with its connection.
pub(super) const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The status says it all; the words are not waited for longer than this.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Characters of an answer that are kept.
pub(super) const WORDS_MAX: usize = 200;
/// The longest wait that a target is believed.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// 4xx that a later try may change, so they are no verdict about the message: the path may be being deployed (404), the
/// request was too slow (408), something stands in the way just now (409, 423, 424), or the connection was the wrong
/// one (421, 425).
const PASSING: [u16; 7] = [404, 408, 409, 421, 423, 424, 425];

/// The kind of an answer that is no success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The target asks for time.
    Busy,
    /// The request was not authenticated, or is sent to another origin: the sink's headers or its url are at fault.
    Setup,
    /// This path is closed to us.
    Forbidden,
    /// The request itself is at fault.
    Bad,
    /// Anything else: the target may have acted.
    Open,
}

/// Classifies a status; `None` for success.
pub(super) fn failure(status: StatusCode, permanent: &Permanent, to_another_origin: bool) -> Option<Failure> {
    let code = status.as_u16();
    let is_permanent = match permanent {
        Permanent::These(list) => list.contains(&code),
        Permanent::Usual => !PASSING.contains(&code) && !matches!(code, 401 | 403 | 407 | 429),
        Permanent::None => false,
    };
    Some(match code {
        200..=299 => return None,
        300..=399 if to_another_origin => Failure::Setup,
        400..=499 if is_permanent => Failure::Bad,
        401 | 407 => Failure::Setup,
        403 => Failure::Forbidden,
        429 | 503 => Failure::Busy,
        _ => Failure::Open,
    })
}

/// Whether an answer points to another host or scheme than `requested`: then every request would be sent away.
pub(super) fn leads_to_another_origin(headers: &HeaderMap, requested: &Uri) -> bool {
    let target = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let base = url::Url::parse(&requested.to_string());
    match (target, base) {
        (Some(target), Ok(base)) => base.join(target).is_ok_and(|target| target.origin() != base.origin()),
        _ => false,
    }
}

/// When the target wants to be asked again: seconds, or a date.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than fit are still a wish to wait long.
        text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs)
    } else {
        let at = httpdate::parse_http_date(text).ok()?;
        let since_epoch = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since_epoch.saturating_sub(Duration::from_millis(now.as_millis()))
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// The first line of an answer, as far as it comes in time, without what no text should hold.
pub(super) async fn words(mut body: Incoming, clock: &dyn Clock, end: Monotonic) -> String {
    let soon = clock.now().mono().saturating_add(ANSWER_TIME_MAX).min(end);
    let mut read = Vec::new();
    let whole = async {
        while read.len() < ANSWER_BYTES_MAX && !body.is_end_stream() {
            // A body that breaks off changes nothing about the status.
            let Some(Ok(frame)) = body.frame().await else { return };
            let data: Bytes = frame.into_data().unwrap_or_default();
            let room = ANSWER_BYTES_MAX - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
        }
    };
    tokio::select! {
        biased;
        () = whole => {}
        () = clock.sleep_until(soon) => {}
    }
    first_line(&read)
}

fn first_line(read: &[u8]) -> String {
    let text = String::from_utf8_lossy(read);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).collect()
}
