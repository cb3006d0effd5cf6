//! The HTTP client of the sink, and nothing else.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use testkit::{bench::process, http::HttpServer};

/// Requests per second to one path, so many under way at a time. Each has the body and the one header that the server reads.
pub(crate) async fn rate(server: &HttpServer, messages: usize, window: usize) -> f64 {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let url = format!("{}/orders", server.url());
    let began = process::now();
    let all = stream::iter(0..messages).map(|_| {
        let request = Request::post(&url).header("duly-due", "0").body(Full::new(Bytes::from_static(b"x")));
        let answer = client.request(request.unwrap());
        async move {
            let answer = answer.await.unwrap();
            assert!(answer.status().is_success(), "{}", answer.status());
            answer.into_body().collect().await.unwrap();
        }
    });
    all.buffer_unordered(window).for_each(|()| async {}).await;
    messages as f64 / began.elapsed().as_secs_f64()
}
