//! The same change for many messages, in calls that each take a while at most.

use std::time::Duration;

use super::{
    Failure, Output, clock, input,
    progress::Progress,
    selection::{self, Ids, ResolvedSelection, Selection},
};
use duly_client::{
    Client, Error, ErrorCode,
    wire::{BulkAnswer, BulkRequest, Moment, MovedRequest},
};

/// Messages that one call with a filter changes.
const PART: u64 = 10_000;
/// Ids per call, unless the limit of the server is lower.
const IDS: usize = 1_000;

/// A change that many messages may be asked for at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verb {
    Cancel,
    Reschedule,
    Fire,
    Replay,
    Purge,
}

impl Verb {
    /// The state of the messages afterwards.
    fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Reschedule => "rescheduled",
            Self::Fire => "fired",
            Self::Replay => "replayed",
            Self::Purge => "purged",
        }
    }

    async fn call(self, client: &Client, request: &MovedRequest) -> Result<BulkAnswer, Error> {
        let MovedRequest { ids, filter, dry_run, as_of, matched, .. } = request.clone();
        let bulk = BulkRequest { ids, filter, dry_run, as_of, matched };
        match self {
            Self::Cancel => client.cancel_many(&bulk).await,
            Self::Reschedule => client.reschedule_many(request).await,
            Self::Fire => client.fire_many(&bulk).await,
            Self::Replay => client.replay(&bulk).await,
            Self::Purge => client.purge(&bulk).await,
        }
    }
}

/// Does it to all that were chosen. By a filter they are counted first, and asked about unless `how` says so: no more than were counted are
/// changed, and none that came since.
pub(crate) async fn change(
    client: &Client,
    out: &Output,
    verb: Verb,
    how: &Selection,
    (resolved, mut request): (ResolvedSelection, MovedRequest),
) -> Result<(), Failure> {
    match resolved {
        ResolvedSelection::Ids(ids) => {
            by_ids(client, out, verb, ids, MovedRequest { dry_run: how.dry_run, ..request }).await
        }
        ResolvedSelection::Matching(filter) => {
            request.filter = Some(filter);
            matching(client, out, verb, how, request).await
        }
    }
}

async fn matching(
    client: &Client,
    out: &Output,
    verb: Verb,
    how: &Selection,
    mut request: MovedRequest,
) -> Result<(), Failure> {
    request.dry_run = true;
    let began = clock::instant();
    let counted = verb.call(client, &request).await?;
    if how.dry_run {
        return selection::print_bulk(out, verb.done(), &counted);
    }
    let question = format!("{} messages would be {}.", clock::grouped(counted.matched), verb.done());
    input::confirm(out, how.yes, &question)?;
    request.dry_run = false;
    fix_time(&mut request, counted.as_of.as_deref(), began.elapsed())?;
    let progress = Progress::of_messages(out, counted.matched);
    let mut total = BulkAnswer { as_of: counted.as_of, ..BulkAnswer::default() };
    let mut left = counted.matched;
    while left > 0 {
        request.matched = Some(left.min(PART));
        let part = verb.call(client, &request).await;
        let part = part.inspect_err(|_| {
            progress.end();
            out.note(&format!("{} {} before that", clock::grouped(total.done), verb.done()));
        })?;
        progress.read(part.matched);
        selection::sum(&mut total, &part);
        left -= part.matched.min(left);
        total.more = part.more;
        if part.matched == 0 || !part.more {
            break;
        }
    }
    progress.end();
    if total.more {
        out.note("more match by now than were counted: they were left alone");
    }
    selection::print_bulk(out, verb.done(), &total)
}

/// All parts go by the instant of the count. A delay counts from the confirmation, `spent` after it: all parts get one due time, so that
/// the next part knows by it what the one before has moved.
fn fix_time(request: &mut MovedRequest, as_of: Option<&str>, spent: Duration) -> Result<(), Failure> {
    let Some(as_of) = as_of else {
        return Err(Failure::failed(
            "the server does not say what it counted: it is older than this command",
        ));
    };
    let wrong = |fault: duly::Invalid| Failure::failed(fault.to_string());
    request.as_of = Some(Moment::Text(as_of.to_owned()));
    if let Some(delay) = request.delay.take() {
        // The clock's millisecond had begun already: one more, so that it is never early.
        let span = delay.span("delay").map_err(wrong)?.saturating_add(Duration::from_millis(1));
        let due = duly::parse_time(as_of).map_err(wrong)?.saturating_add(spent).saturating_add(span);
        request.deliver_at = Some(Moment::Millis(due.as_millis()));
    }
    Ok(())
}

async fn by_ids(
    client: &Client,
    out: &Output,
    verb: Verb,
    ids: Ids,
    mut request: MovedRequest,
) -> Result<(), Failure> {
    let mut total = BulkAnswer { dry_run: request.dry_run, ..BulkAnswer::default() };
    let (mut rest, mut size) = (ids.all.as_slice(), IDS);
    let progress = Progress::of_messages(out, rest.len() as u64);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(size));
        request.ids = Some(now.to_vec());
        match verb.call(client, &request).await {
            Ok(part) => selection::sum(&mut total, &part),
            Err(error) if error.code() == Some(ErrorCode::TooMany) && size > 1 => {
                size /= 2;
                continue;
            }
            Err(error) => {
                progress.end();
                return Err(error.into());
            }
        }
        progress.read(now.len() as u64);
        rest = later;
    }
    progress.end();
    selection::print_bulk(out, verb.done(), &total).and(ids.check_whole())
}

#[cfg(test)]
mod tests {
    use duly::{Message, hours};

    use super::*;
    use duly_client::wire::{Delay, Filter};
    use duly_server::{
        config::{Config, StoreSetup},
        serve,
    };

    /// However long a store takes to count and to change, the command waits. A client that waits for nothing else shows it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_change_of_many_waits_longer_than_any_other_call() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            store: StoreSetup::in_folder(folder.path().join("data")),
            ..Config::default()
        };
        let running = serve::start(config).await.unwrap();
        let messages = ["a", "b", "c", "d"].map(|id| Message::to("order").id(id).after(hours(1)));
        for sent in running.duly().send_batch(messages).await {
            sent.unwrap();
        }
        let client = Client::new(&running.url()).unwrap().timeout(Duration::ZERO);
        let out = Output { quiet: true, ..Output::default() };
        let how = Selection::confirmed();
        let ids = Ids { all: vec!["a".into(), "b".into()], is_cut: false };
        let by_filter = Filter { topic: Some("order".into()), ..Filter::default() };
        for (resolved, left) in
            [(ResolvedSelection::Ids(ids), 2), (ResolvedSelection::Matching(by_filter), 0)]
        {
            change(&client, &out, Verb::Cancel, &how, (resolved, MovedRequest::default())).await.unwrap();
            assert_eq!(running.duly().totals().await.unwrap().pending, left);
        }
        running.stop().await.unwrap();
    }

    #[test]
    fn a_delay_counts_from_the_confirmation_and_not_from_the_count() {
        let as_of = "2030-01-01T00:00:00.000Z";
        let mut request = MovedRequest { delay: Some(Delay::Text("10m".into())), ..MovedRequest::default() };
        fix_time(&mut request, Some(as_of), Duration::from_secs(300)).unwrap();
        let due = request.deliver_at.unwrap().time("deliver_at").unwrap();
        let confirmed = duly::parse_time(as_of).unwrap().saturating_add(Duration::from_secs(300));
        let span = Duration::from_secs(600);
        assert!(due >= confirmed.saturating_add(span), "{due} is early");
        assert!(due < confirmed.saturating_add(span + Duration::from_millis(5)), "{due} is late");
        assert!(request.delay.is_none());
    }
}
