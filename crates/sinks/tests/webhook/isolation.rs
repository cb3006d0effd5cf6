//! Through the whole library: one slow or silent endpoint delays nobody else.
//!
//! Nothing here goes by the clock: the slow ones answer when the test says so, and the silent ones never.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use duly::{Duly, Message, SinkOptions, SystemClock};
use duly_sinks::SinkConfig;
use duly_stores::MemoryStore;
use http::Response;
use testkit::http::{HttpServer, Reply, Request};
use tokio::sync::watch;

/// Longer than any of these tests takes.
const REQUEST: &str = "40s";
const CALL: Duration = Duration::from_secs(45);
const LEASE: Duration = Duration::from_secs(60);

/// A Duly with one webhook sink, as the server would serve it.
async fn start(settings: &str) -> Duly {
    let text = format!("kind = 'webhook'\nallow_private = true\nrequest_timeout = '{REQUEST}'\n{settings}");
    let config: SinkConfig = toml::from_str(&text).unwrap();
    let sink = config.build(Arc::new(SystemClock::new().unwrap())).unwrap();
    let options = SinkOptions { batch: config.batch(), timeout: CALL, ..SinkOptions::default() };
    let store = Arc::new(MemoryStore::new());
    Duly::builder().store(store).lease(LEASE).sink("hooks", sink, options).start().await.unwrap()
}

/// All of them are due at once.
async fn send(duly: &Duly, topics: impl Iterator<Item = String>) {
    let now = duly.now();
    let messages: Vec<_> = topics.map(|topic| Message::to_sink("hooks", &topic).at(now).text("x")).collect();
    for batch in messages.chunks(500) {
        for sent in duly.send_batch(batch.to_vec()).await {
            sent.unwrap();
        }
    }
}

async fn delivered(duly: &Duly, count: u64) {
    while duly.stats().delivered < count {
        tokio::task::yield_now().await;
    }
}

fn to_path(requests: &[Request], path: &str) -> usize {
    requests.iter().filter(|request| request.uri.path() == path).count()
}

#[tokio::test]
async fn all_fast_messages_arrive_while_the_slow_ones_are_unanswered() {
    let (release, release_rx) = watch::channel(false);
    let server = HttpServer::start(move |request| match request.uri.path() {
        "/slow" => Reply::AfterSignal(Response::new(Bytes::new()), release_rx.clone()),
        _ => Reply::status(204, ""),
    });
    let duly = start(&format!("url = '{}'", server.url())).await;
    let topic = |n: usize| if n.is_multiple_of(20) { "slow" } else { "fast" };
    send(&duly, (0..400).map(|n| topic(n).to_owned())).await;
    delivered(&duly, 380).await;
    assert_eq!(duly.stats().delivered, 380, "none of the slow ones");
    assert_eq!(to_path(&server.requests(), "/fast"), 380);
    release.send_replace(true);
    delivered(&duly, 400).await;
    let requests = server.requests();
    let ids: BTreeSet<_> = requests.iter().map(|request| request.header("duly-id")).collect();
    assert_eq!((requests.len(), ids.len()), (400, 400), "each came once");
    assert_eq!(duly.stats().dead, 0);
    duly.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_silent_url_takes_nothing_from_a_good_one() {
    let silent = HttpServer::start(|_| Reply::Never);
    let good = HttpServer::start(|_| Reply::status(204, ""));
    let duly = start("allow_urls = ['http://127.0.0.1:*']").await;
    // More to the silent one than the sink may have under way, and they are due first.
    send(&duly, (0..1_000).map(|n| format!("{}/hook?{n}", silent.url()))).await;
    silent.wait_for(1).await;
    send(&duly, (0..1_000).map(|n| format!("{}/hook?{n}", good.url()))).await;
    delivered(&duly, 1_000).await;
    assert_eq!(to_path(&good.requests(), "/hook"), 1_000);
    let (requested, open) = (silent.requests().len(), silent.open_max());
    assert!(requested <= 128 && open <= 128, "{requested} requests and {open} connections to the silent one");
    assert_eq!(duly.stats().dead, 0);
}

/// With a new path for each message, no destination is seen twice, and no breaker opens.
#[tokio::test]
async fn a_silent_origin_with_a_path_for_each_message_takes_nothing_from_the_others() {
    let silent = HttpServer::start(|_| Reply::Never);
    let good = HttpServer::start(|_| Reply::status(204, ""));
    let duly = start("allow_urls = ['http://127.0.0.1:*']").await;
    send(&duly, (0..1_000).map(|n| format!("{}/orders/{n}", silent.url()))).await;
    silent.wait_for(1).await;
    send(&duly, (0..500).map(|n| format!("{}/orders/{n}", good.url()))).await;
    delivered(&duly, 500).await;
    assert_eq!(good.requests().len(), 500);
    assert!(silent.open_max() <= 64, "{} connections to the silent one", silent.open_max());
}

/// 10,000 customers, each with a server of its own.
#[tokio::test]
async fn ten_thousand_origins_keep_connections_bounded() {
    const ORIGINS: usize = 10_000;
    /// What the sink keeps, and as much as its lane has under way.
    const OPEN_MAX: usize = 256 + 4 * 128;
    let server = HttpServer::start_everywhere(|_| Reply::status(204, ""));
    let port = server.addr().port();
    let duly = start("allow_urls = ['http://*:*']").await;
    let url = |n: usize| format!("http://127.1.{}.{}:{port}/hook", n / 250, n % 250 + 1);
    send(&duly, (0..ORIGINS).map(url)).await;
    delivered(&duly, ORIGINS as u64).await;
    assert_eq!(server.requests().len(), ORIGINS);
    // The server sees a connection end a little after the sink.
    assert!(server.open_max() <= OPEN_MAX * 5 / 4, "{} connections were open at once", server.open_max());
    assert_eq!(duly.stats().dead, 0);
    duly.shutdown().await.unwrap();
}
