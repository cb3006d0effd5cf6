//! The Rust client against a real server: the example of its documentation, and every call.

use std::time::{Duration, SystemTime};

use duly_client::{
    Client, Error, ErrorCode, EventFilter, ForecastSpan, Query,
    wire::{
        BatchResult, BulkRequest, Event, Extend, Filter, MovedRequest, Nack, NewMessage, Receive, ReceiveAny,
        Reschedule,
    },
};
use duly_server::auth::{Role, Token, Tokens};

use crate::{bed::Bed, target::Target};

#[expect(dead_code, reason = "its main is for people who run it")]
#[path = "../../../client/examples/orders.rs"]
mod orders;

const LATER: Duration = Duration::from_secs(3600);

fn client(bed: &Bed) -> Client {
    Client::new(&format!("http://{}", bed.addr())).unwrap()
}

fn now_and_wait() -> Receive {
    Receive { wait: Some(Duration::from_secs(20).into()), ..Receive::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_client_runs() {
    let bed = Bed::new().await;
    assert_eq!(orders::orders(&client(&bed)).await.unwrap(), ["order-42"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_sends_looks_and_changes() {
    let bed = Bed::new().await;
    let client = client(&bed);
    let message = NewMessage::to("order").id("a/b").text("x").property("tenant", "t").after(LATER);
    // An id that no id can be is refused by its code and its place.
    let refused = client.send(&message).await.unwrap_err();
    assert_eq!((refused.code(), refused.status()), (Some(ErrorCode::BadId), Some(422)));
    assert!(!refused.is_transient() && !refused.is_maybe_done(), "{refused:?}");

    let message = NewMessage { id: Some("a".into()), ..message };
    assert!(!client.send(&message).await.unwrap().duplicate);
    assert!(client.send(&message).await.unwrap().duplicate, "the same content is accepted once");
    let known = client.get("a").await.unwrap();
    assert_eq!((known.state.as_str(), known.content.body.as_deref()), ("pending", Some("x")));
    let at_ms = known.times.deliver_at_ms + 1;
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms);
    let moved = client.reschedule("a", &Reschedule::at(at)).await.unwrap();
    assert_eq!(moved.deliver_at_ms, at_ms);
    assert_eq!(client.list(&Query::default()).await.unwrap().messages.len(), 1);
    let soon = Query { due_to: Some(SystemTime::UNIX_EPOCH.into()), ..Query::default() };
    assert!(client.list(&soon).await.unwrap().messages.is_empty());
    assert_eq!(client.cancel("a").await.unwrap().state, "cancelled");
    let late = client.fire("a").await.unwrap_err();
    assert_eq!((late.code(), late.status()), (Some(ErrorCode::TooLate), Some(409)));
    assert_eq!(client.get("nobody").await.unwrap_err().code(), Some(ErrorCode::NotFound));

    let many: Vec<_> = ["b", "c", ".."].map(|id| NewMessage::to("order").id(id).after(LATER)).into();
    let results = client.send_batch(&many).await.unwrap();
    assert!(
        matches!(&results[..2], [BatchResult::Accepted(b), BatchResult::Accepted(c)] if b.id == "b" && c.id == "c")
    );
    assert!(matches!(&results[2], BatchResult::Refused { error } if error.code == "bad_id"));
    let ids = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
    let wish = MovedRequest { ids: ids(&["b", "c"]), delay: Some(LATER.into()), ..MovedRequest::default() };
    assert_eq!(client.reschedule_many(&wish).await.unwrap().done, 2);
    let one = BulkRequest { ids: ids(&["b"]), ..BulkRequest::default() };
    assert_eq!(client.cancel_many(&one).await.unwrap().done, 1);
    let filter = Some(Filter { topic: Some("order".into()), ..Filter::default() });
    let rest = BulkRequest { filter, ..BulkRequest::default() };
    assert_eq!(client.fire_many(&rest).await.unwrap().done, 1);
    let received = client.receive("order", &now_and_wait()).await.unwrap();
    assert_eq!(received[0].id, "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_receives_and_settles() {
    let bed = Bed::new().await;
    let client = client(&bed);
    assert!(client.receive("order", &Receive::default()).await.unwrap().is_empty());
    client.send(&NewMessage::to("order").id("a").json(&7).unwrap()).await.unwrap();
    let held = client.receive("order", &now_and_wait()).await.unwrap().remove(0);
    assert_eq!((held.attempt, held.json.as_ref().map(|json| json.get())), (1, Some("7")));
    let extend = Extend { receipts: vec![held.receipt.clone()], lease: Some(LATER.into()) };
    assert_eq!(client.extend("order", &extend).await.unwrap().results[0].outcome, "done");
    let wrong = client.ack("mail", [&held.receipt]).await.unwrap_err();
    assert_eq!(wrong.code(), Some(ErrorCode::WrongQueue));
    let again = Nack {
        receipts: vec![held.receipt],
        delay: Some(Duration::from_millis(1).into()),
        ..Nack::default()
    };
    assert_eq!(client.nack("order", &again).await.unwrap().results[0].outcome, "done");

    let any = ReceiveAny {
        topics: vec!["mail".into(), "order".into()],
        wait: now_and_wait().wait,
        ..ReceiveAny::default()
    };
    let held = client.receive_any(&any).await.unwrap().remove(0);
    assert_eq!((held.id.as_str(), held.attempt), ("a", 2));
    let dead = Nack { receipts: vec![held.receipt], dead: true, ..Nack::default() };
    assert_eq!(client.nack_any(&dead).await.unwrap().results[0].outcome, "done");
    assert_eq!(client.dead(&Query::default()).await.unwrap().messages[0].id, "a");
    let all = BulkRequest { filter: Some(Filter::default()), ..BulkRequest::default() };
    assert_eq!(client.replay(&all).await.unwrap().done, 1);
    let held = client.receive("order", &now_and_wait()).await.unwrap().remove(0);
    let extend = Extend { receipts: vec![held.receipt.clone()], lease: None };
    assert_eq!(client.extend_any(&extend).await.unwrap().results[0].outcome, "done");
    assert_eq!(client.ack_any([&held.receipt]).await.unwrap().results[0].outcome, "done");
    assert_eq!(client.ack("order", [held.receipt]).await.unwrap().results[0].outcome, "lost");
    assert_eq!(client.purge(&all).await.unwrap().matched, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_sees_the_whole_and_follows_it() {
    let target = Target::new().await;
    let bed = Bed::with(|config| target.configure(config, "hook")).await;
    let client = client(&bed);
    let types = Some("accepted".to_owned());
    let mut events = client.events(&EventFilter { types, ..EventFilter::default() }).await.unwrap();
    client.send(&NewMessage::to("order").id("a").after(LATER)).await.unwrap();
    let event = events.next().await.unwrap().unwrap();
    assert!(matches!(event.parse(), Some(Event::Accepted { id, .. }) if id == "a"), "{event:?}");

    assert_eq!(client.stats().await.unwrap().totals.pending, 1);
    let forecast =
        client.forecast(&ForecastSpan { buckets: Some(3), ..ForecastSpan::default() }).await.unwrap();
    assert_eq!(forecast.buckets.len(), 3);
    assert_eq!(client.nodes().await.unwrap().nodes.len(), 1);
    assert!(client.levels().await.unwrap().default.is_none());
    assert!(client.whoami().await.unwrap().known);
    bed.until_ready().await;
    assert!(client.ready().await.unwrap().ready);
    client.live().await.unwrap();
    assert!(client.metrics().await.unwrap().contains("duly_"));

    client.pause_queue("order").await.unwrap();
    assert!(client.queues(None).await.unwrap().queues[0].paused);
    client.resume_queue("order").await.unwrap();
    client.pause_sink("hook").await.unwrap();
    assert!(client.sinks().await.unwrap().sinks[0].paused);
    client.resume_sink("hook").await.unwrap();
    client.probe_sink("hook").await.unwrap();
    assert_eq!(client.probe_sink("nobody").await.unwrap_err().code(), Some(ErrorCode::NoSuchSink));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_without_its_token_is_refused_and_an_absent_server_is_unreachable() {
    let token = "duly_for_the_client";
    let mut bed = Bed::with(|config| {
        config.tokens = Tokens::new(vec![Token::new("shop", token, &[Role::Admin], &[])]);
    })
    .await;
    let stranger = client(&bed);
    let refused = stranger.stats().await.unwrap_err();
    assert_eq!((refused.code(), refused.status()), (Some(ErrorCode::Unauthorized), Some(401)));
    let known = stranger.token(token).unwrap();
    assert_eq!(known.whoami().await.unwrap().name.as_deref(), Some("shop"));
    bed.stop().await;
    let unreachable = known.stats().await.unwrap_err();
    assert!(
        matches!(unreachable, Error::Unreachable { .. })
            && unreachable.is_transient()
            && !unreachable.is_maybe_done(),
        "{unreachable:?}"
    );
}
