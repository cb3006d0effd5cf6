//! Many messages in one call, streamed both ways.

use duly::ErrorCode;
use std::{collections::VecDeque, pin::Pin, sync::Arc};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse, Response},
};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesOrdered,
};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::{sync::mpsc, time::timeout};

use super::{
    app::App,
    body,
    body_memory::Share,
    caller::Who,
    fault::{ApiResult, Fault},
    intake::{self, Target},
    items::{BLANKS_MAX, Broken, Form, Items},
    response,
    result_room::{ResultRoom, UnreadResults},
    trace::Trace,
};
use crate::{
    auth::Role,
    wire::{BatchResult, NewMessage},
};

/// The path of batches: the only request body without a size limit.
pub(super) const PATH: &str = "/v1/messages/batch";
/// Messages inserted by one call of the store.
const GROUP: usize = 1_024;
/// Bytes buffered before they are split into items.
const GOOD_HANDFUL: usize = 256 << 10;
/// Bytes of the result of an accepted item at most, and of most refusals by the store.
const RESULT_BYTES: usize = 768;
/// Groups of one batch that wait for a sync at the same time.
const GROUPS: usize = 4;

/// Schedule many messages, streamed
///
/// NDJSON (one message a line) or a JSON array. Answers one result per item, in the same form and order, each after its
/// own sync. A bad item is answered in its place; its neighbours stand.
#[utoipa::path(
    post, path = "/v1/messages/batch", operation_id = "send_batch", tag = "messages",
    request_body(content((NewMessage = "application/x-ndjson"), (Vec<NewMessage> = "application/json"))),
    responses(
        (status = 200, description = "One result per item", content((BatchResult = "application/x-ndjson"), (Vec<BatchResult> = "application/json"))),
    )
)]
pub(super) async fn send(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
    sent: Body,
) -> ApiResult<Response> {
    who.need(Role::Produce)?;
    let trace = Trace::of(&headers, &app);
    let mut reader = Reader {
        items: Items::new(body::request_max(&app.limits)),
        sent,
        share: app.bodies.share(),
        over: false,
    };
    // The response has the form of the request, which its first character decides: wait for that.
    while reader.items.form().is_none() && !reader.over {
        reader.fill(&app).await?;
        if let Err(broken) = reader.items.check_blanks() {
            let _ = timeout(app.http.body_timeout, body::drain(&mut reader.sent)).await;
            return Err(explain(&app, 0, broken));
        }
    }
    let form = reader.items.form().unwrap_or(Form::Lines);
    // Without a bound in number, as a client that reads only after it has written everything would deadlock with us. Each has its share
    // of the memory for answers.
    let (unread, held) = UnreadResults::new();
    let (answers, mut answered) = mpsc::unbounded_channel::<Bytes>();
    let who = Arc::new(who);
    tokio::spawn(async move {
        Batch { app, who, trace, form, answers, unread, taken: 0, answered: 0 }.run(reader).await
    });
    let stream = futures_util::stream::poll_fn(move |cx| {
        answered.poll_recv(cx).map(|part| part.map(Ok::<_, std::io::Error>))
    });
    let kind = match form {
        Form::Lines => "application/x-ndjson",
        Form::Array => "application/json",
    };
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
    Ok((kind, Extension(held), Body::from_stream(stream)).into_response())
}

/// Splits the body into items.
struct Reader {
    items: Items,
    sent: Body,
    /// This request's share of the memory for bodies.
    share: Share,
    over: bool,
}

impl Reader {
    /// Waits for more bytes, then takes what has arrived, up to a limit.
    async fn fill(&mut self, app: &App) -> ApiResult<()> {
        let frame = timeout(app.http.body_timeout, self.sent.frame()).await.map_err(|_| body::late(app))?;
        let mut taken = self.take(frame)?;
        while !self.over && taken < GOOD_HANDFUL {
            let Some(frame) = self.sent.frame().now_or_never() else { break };
            taken += self.take(frame)?;
        }
        Ok(())
    }

    fn take(&mut self, frame: Option<Result<Frame<Bytes>, axum::Error>>) -> ApiResult<usize> {
        let Some(frame) = frame else {
            self.over = true;
            return Ok(0);
        };
        let Ok(data) = frame.map_err(|error| body::broken(&error))?.into_data() else { return Ok(0) };
        self.share.grow(self.items.held() + data.len())?;
        self.items.push(&data);
        Ok(data.len())
    }
}

/// One batch being processed.
struct Batch {
    app: Arc<App>,
    who: Arc<Who>,
    /// The trace that the whole batch belongs to.
    trace: Trace,
    form: Form,
    answers: mpsc::UnboundedSender<Bytes>,
    unread: UnreadResults,
    taken: usize,
    answered: usize,
}

type Group = Vec<ApiResult<(Target, duly::Message)>>;
type Results = Pin<Box<dyn Future<Output = (Vec<BatchResult>, ResultRoom)> + Send>>;
/// A group, its share of the memory for bodies, and room for its results if there is some.
type Admission = (Group, Share, Option<ResultRoom>);

impl Batch {
    async fn run(mut self, mut reader: Reader) {
        let mut waiting: FuturesOrdered<Results> = FuturesOrdered::new();
        let mut admission = OptionFuture::from(None::<BoxFuture<'static, Admission>>);
        let (mut end, mut is_admitting) = (None, false);
        loop {
            if end.is_none() && !is_admitting && waiting.len() < GROUPS {
                let group = self.group(&mut reader, &mut end);
                if !group.is_empty() {
                    let share = reader.share.split(reader.items.held());
                    (admission, is_admitting) = (Some(self.admit(group, share)).into(), true);
                }
            }
            if end.is_some() && !is_admitting && waiting.is_empty() {
                break;
            }
            let reads = end.is_none() && !is_admitting && waiting.len() < GROUPS;
            tokio::select! {
                Some((results, room)) = waiting.next() => {
                    if !self.send_results(results, Some(room)) {
                        return; // Nobody listens any more; what was taken stands.
                    }
                }
                Some((group, share, room)) = &mut admission, if is_admitting => {
                    is_admitting = false;
                    match room {
                        Some(room) => waiting.push_back(submit(self.app.clone(), self.who.clone(), group, share, room)),
                        None => end = Some(Err(no_room(self.taken - group.len()))),
                    }
                }
                filled = reader.fill(&self.app), if reads => end = filled.err().map(Err),
            }
        }
        if let Some(Err(fault)) = end {
            self.send_results(vec![BatchResult::Refused { error: fault.item() }], None);
        }
        if self.form == Form::Array {
            let end: &[u8] = if self.answered == 0 { b"[]" } else { b"]" };
            let _ = self.answers.send(Bytes::from_static(end));
        }
        let timeout = timeout(self.app.http.body_timeout, body::drain(&mut reader.sent));
        // The response ends with its last result, before the rest of the request is drained.
        drop(self.answers);
        let _ = timeout.await;
    }

    /// Waits for room for the results of a group. Nothing more of the request is read meanwhile.
    fn admit(&self, group: Group, share: Share) -> BoxFuture<'static, Admission> {
        let (app, who, unread) = (self.app.clone(), self.who.clone(), self.unread.clone());
        async move {
            let bytes = |item: &ApiResult<_>| item.as_ref().err().map_or(RESULT_BYTES, Fault::item_bytes);
            let room = unread.room(&app, &who, group.iter().map(bytes).sum()).await;
            (group, share, room)
        }
        .boxed()
    }

    /// The messages that have arrived, up to a group; and how the batch ended, if it did.
    fn group(&mut self, reader: &mut Reader, end: &mut Option<ApiResult<()>>) -> Group {
        let mut group = Vec::new();
        while group.len() < GROUP {
            let item = match reader.items.next() {
                Ok(None) if reader.over => reader.items.end(),
                item => item,
            };
            match item.map_err(|broken| explain(&self.app, self.taken, broken)) {
                Ok(Some(item)) => match self.read(&item) {
                    Ok(message) => group.push(message),
                    Err(fault) => *end = Some(Err(fault)),
                },
                Ok(None) if reader.over => *end = Some(Ok(())),
                Ok(None) => break,
                Err(fault) => *end = Some(Err(fault)),
            }
            if end.is_some() {
                break;
            }
        }
        group
    }

    /// Reads one item. An error ends the batch; a bad item only gets an error as its result.
    fn read(&mut self, item: &[u8]) -> ApiResult<ApiResult<(Target, duly::Message)>> {
        let max = self.app.limits.batch_max;
        if self.taken >= max {
            let detail = format!(
                "a batch has at most {max} items; this one and what follows were not read, send them in another"
            );
            return Err(Fault::at(ErrorCode::BatchTooLarge, format!("[{max}]"), detail));
        }
        self.taken += 1;
        let message = body::parse::<NewMessage>(item).and_then(|new| {
            self.who.require_topic(&new.topic)?.require_id_allowed(new.id.as_deref())?;
            intake::message(new, &self.trace)
        });
        Ok(message)
    }

    /// Queues results for the response; false if the client has disconnected. Only the last one needs no room.
    fn send_results(&mut self, results: Vec<BatchResult>, room: Option<ResultRoom>) -> bool {
        let mut text = Vec::with_capacity(results.len() * 192);
        for result in results {
            if self.form == Form::Array {
                text.push(if self.answered == 0 { b'[' } else { b',' });
            }
            // These types always serialize.
            let _ = serde_json::to_writer(&mut text, &result);
            if self.form == Form::Lines {
                text.push(b'\n');
            }
            self.answered += 1;
        }
        let text = match room {
            Some(room) => room.hold(text),
            None => text.into(),
        };
        self.answers.send(text).is_ok()
    }
}

/// The end of a batch whose item `place` cannot be read.
fn explain(app: &App, place: usize, broken: Broken) -> Fault {
    let path = format!("[{place}]");
    match broken {
        Broken::TooLong => {
            let max = body::request_max(&app.limits);
            let detail = format!("this item has more than {max} bytes; it and what follows were not read");
            Fault::at(ErrorCode::BodyTooLarge, path, detail)
        }
        Broken::Blank => {
            let detail = format!(
                "more than {BLANKS_MAX} blank bytes before this item; it and what follows were not read"
            );
            Fault::at(ErrorCode::BadJson, path, detail)
        }
        Broken::NotAnArray => Fault::at(
            ErrorCode::BadJson,
            path,
            "an array has values with single commas between; what follows was not read",
        ),
        Broken::Half => {
            Fault::at(ErrorCode::IncompleteBody, path, "the array has no end; the items before stand")
        }
    }
}

/// The end of a batch at the item `place`.
fn no_room(place: usize) -> Fault {
    let detail = "many results wait for clients to read them; this item and what follows were not taken: \
                  send them again in a second, and read the results meanwhile";
    Fault::at(ErrorCode::Busy, format!("[{place}]"), detail)
}

/// Inserts a group; returns one result per item, in their order.
fn submit(app: Arc<App>, who: Arc<Who>, group: Group, share: Share, room: ResultRoom) -> Results {
    let count = group.len();
    let refused = |fault: Fault| BatchResult::Refused { error: fault.item() };
    // A task of its own: the next group is read while this one waits for its sync.
    let submitted = tokio::spawn(async move {
        let _share = share;
        let mut targets = VecDeque::with_capacity(group.len());
        let mut messages = Vec::with_capacity(group.len());
        for item in group {
            let admitted = match item {
                Ok((target, message)) => target.admit_topic(&app, &who).await.map(|()| (target, message)),
                Err(fault) => Err(fault),
            };
            targets.push_back(admitted.map(|(target, message)| {
                messages.push(message);
                target
            }));
        }
        let mut answers = app.duly.send_batch(messages).await.into_iter();
        let result = |target: ApiResult<Target>| match target {
            Err(fault) => refused(fault),
            Ok(target) => match answers.next() {
                Some(Ok(accepted)) => BatchResult::Accepted(response::accepted(target, &accepted)),
                Some(Err(error)) => refused(error.into()),
                None => refused(Fault::new(
                    ErrorCode::Internal,
                    "no answer came for this item; send it again with its id",
                )),
            },
        };
        targets.into_iter().map(result).collect()
    });
    Box::pin(async move {
        // Each item needs exactly one result, or those of the next group would shift.
        let results = submitted.await.unwrap_or_else(|_| {
            let fault = || {
                Fault::new(ErrorCode::Internal, "the server failed at this item; send it again with its id")
            };
            (0..count).map(|_| refused(fault())).collect()
        });
        (results, room)
    })
}
