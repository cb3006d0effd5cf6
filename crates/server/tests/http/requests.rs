//! What `/metrics` says of requests.

use http::Method;
use serde_json::json;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_route_and_status_and_never_by_path() {
    let bed = Bed::new().await;
    bed.send(json!({"topic": "a", "id": "one"})).await;
    for path in
        ["/v1/messages/one", "/v1/messages/nobody", "/v1/messages/none", "/secret-path", "/openapi.json"]
    {
        bed.get(path).await;
    }
    bed.call(Method::PUT, "/v1/messages", "").await;
    // Refused before any route.
    let foreign = [("origin", "https://elsewhere.example")];
    assert_eq!(bed.call_with(Method::POST, "/v1/messages", "{}", &foreign).await.code(), "cross_origin");
    let page = bed.get("/metrics").await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let count = |method: &str, route: &str, status: &str| {
        let route = if route.is_empty() { String::new() } else { format!("http_route=\"{route}\",") };
        let line = format!(
            "http_server_request_duration_seconds_count{{http_request_method=\"{method}\",{route}http_response_status_code=\"{status}\"}} "
        );
        page.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
    };
    for (method, route, status, expected) in [
        ("POST", "/v1/messages", "201", 1),
        ("POST", "/v1/messages", "403", 1),
        ("PUT", "/v1/messages", "405", 1),
        ("GET", "/v1/messages/{id}", "200", 1),
        ("GET", "/v1/messages/{id}", "404", 2),
        ("GET", "/openapi.json", "200", 1),
        ("GET", "", "404", 1),
    ] {
        assert_eq!(count(method, route, status), expected, "{method} {route} {status}\n{page}");
    }
    assert!(!page.contains("secret-path") && !page.contains("nobody"));
}
