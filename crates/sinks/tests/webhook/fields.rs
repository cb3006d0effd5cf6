//! What a request carries.

use base64::{Engine, prelude::BASE64_STANDARD};
use duly_core::{Body, Delivery, SinkErrorKind, StoredMessage};
use hmac::{Hmac, KeyInit, Mac};
use testkit::http::Request;

use crate::{by_path, message, sink_to};

/// What a receiver does, as in the guide.
fn verify(request: &Request, key: &[u8]) -> bool {
    let text = |name: &str| request.header(name).unwrap();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
    mac.update(format!("{}.{}.", text("webhook-id"), text("webhook-timestamp")).as_bytes());
    mac.update(&request.body);
    let want = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    text("webhook-signature").split(' ').any(|signature| signature == want)
}

#[tokio::test]
async fn a_request_carries_the_whole_message_and_is_signed_with_every_secret() {
    let server = by_path();
    let settings = "method = 'PUT'\nsecret = ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'old words']\n\
                    [headers]\nAuthorization = 'Bearer abc'";
    let sink = sink_to(&server, settings);
    let mut order = StoredMessage { body: Body::json(&["a"]).unwrap(), ..message("orders/late") };
    order.tag = Some("paid".parse().unwrap());
    order.properties.set("Tenant", "a, b; ü").unwrap();
    sink.deliver(&[Delivery::new(order, 3)]).await.remove(0).unwrap();

    let request = server.requests().remove(0);
    assert_eq!((request.method.as_str(), request.uri.path()), ("PUT", "/orders/late"));
    for (name, want) in [
        ("content-type", "application/json"),
        ("content-length", "5"),
        ("user-agent", concat!("duly/", env!("CARGO_PKG_VERSION"))),
        ("authorization", "Bearer abc"),
        ("duly-id", "order-42"),
        ("duly-due", "1767225599000"),
        ("duly-attempt", "3"),
        ("duly-topic", "orders/late"),
        ("duly-tag", "paid"),
        ("tenant", "a, b; ü"),
        ("webhook-id", "order-42"),
        ("webhook-timestamp", "1767225600"),
        ("host", &server.addr().to_string()),
    ] {
        assert_eq!(request.header(name).as_deref(), Some(want), "{name}");
    }
    assert!(request.header("duly-key").is_none() && request.headers.len() == 14, "{:?}", request.headers);
    assert!(verify(&request, &BASE64_STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()));
    assert!(verify(&request, b"old words"));
    assert!(!verify(&request, b"other words"));
    assert_eq!(request.header("webhook-signature").unwrap().split(' ').count(), 2);
}

/// Whoever may send to an address of their choice would otherwise read the sink's password there, and could play a signed request
/// back to the sink's own receiver.
#[tokio::test]
async fn what_the_sink_knows_goes_to_its_own_address_alone() {
    let (own, named) = (by_path(), by_path());
    let settings = "allow_urls = ['http://127.0.0.1:*']\nsecret = 'plain words'\n\
                    [headers]\nAuthorization = 'Bearer abc'\nx-tenant = 'a'";
    let sink = sink_to(&own, settings);
    let mut elsewhere = message(&format!("{}/hook?a=b", named.url()));
    elsewhere.properties.set("x-tenant", "mine").unwrap();
    // An address of the sink's own origin is named by the message all the same.
    let outcomes = sink
        .deliver(&[
            Delivery::new(elsewhere, 1),
            crate::to(&format!("{}/named", own.url())),
            crate::to("below"),
        ])
        .await;
    outcomes.into_iter().for_each(|outcome| assert!(outcome.is_ok(), "{outcome:?}"));

    let request = named.requests().remove(0);
    assert_eq!(request.header("authorization"), None);
    assert_eq!(request.header("x-tenant").as_deref(), Some("mine"));
    assert!(!verify(&request, b"plain words"), "good for the sink's own address, too");
    let key_of = |url: &str| {
        let mac = Hmac::<sha2::Sha256>::new_from_slice(b"plain words").unwrap();
        mac.chain_update(url.as_bytes()).finalize().into_bytes()
    };
    assert!(verify(&request, &key_of(&format!("{}/hook?a=b", named.url()))));
    for request in own.requests() {
        let is_own = request.uri.path() == "/below";
        assert_eq!(request.header("authorization").is_some(), is_own, "{}", request.uri);
        assert_eq!(verify(&request, b"plain words"), is_own, "{}", request.uri);
    }
}

#[tokio::test]
async fn without_a_secret_there_is_no_signature() {
    let server = by_path();
    sink_to(&server, "").deliver(&[crate::to("a")]).await.remove(0).unwrap();
    assert_eq!(server.requests()[0].header("webhook-signature"), None);
    assert_eq!(server.requests()[0].header("webhook-id").as_deref(), Some("order-42"));
}

#[tokio::test]
async fn a_property_that_is_no_header_refuses_its_message_and_no_other() {
    let server = by_path();
    let sink = sink_to(&server, "[headers]\nauthorization = 'Bearer abc'");
    let with = |name: &str, value: &str| {
        let mut message = message("a");
        message.properties.put(name, value);
        Delivery::new(message, 1)
    };
    let mut twice = with("x-a", "1");
    twice.message.properties.put("X-A", "2");
    let batch = [
        with("tenant", "a"),
        with("two words", "a"),
        with("Authorization", "Bearer evil"),
        with("Content-Length", "0"),
        with("transfer-encoding", "chunked"),
        with("x", "a\r\nevil: 1"),
        twice,
        with("content-type", "application/xml"),
    ];
    let outcomes = sink.deliver(&batch).await;
    for (place, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(_) => assert!([0, 7].contains(&place), "{place}"),
            Err(error) => {
                assert_eq!(error.kind, SinkErrorKind::Refused);
                assert!(error.detail.ends_with("[bad_property]"), "{}", error.detail);
            }
        }
    }
    let mut types: Vec<_> =
        server.requests().iter().map(|request| request.header("content-type").unwrap()).collect();
    types.sort();
    assert_eq!(types, ["application/xml", "text/plain; charset=utf-8"]);
    assert!(server.requests().iter().all(|request| request.header("authorization").unwrap() == "Bearer abc"));
}
