//! The client against a server of a few lines.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

use duly_core::ErrorCode;

use super::*;

/// Serves each of `answers` in turn; `close` says whether the connection ends after it.
async fn server(answers: Vec<(&'static str, bool)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    tokio::spawn(async move {
        let mut answers = answers.into_iter().peekable();
        while answers.peek().is_some() {
            let (mut stream, _) = listener.accept().await.unwrap();
            seen.lock().await.push("connected".into());
            for (answer, close) in answers.by_ref() {
                seen.lock().await.push(head(&mut stream).await);
                stream.write_all(answer.as_bytes()).await.unwrap();
                if close {
                    break;
                }
            }
        }
    });
    (Client::new(&url).unwrap().token("secret").unwrap(), heads)
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

const ONE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1";
const TWO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n2";

#[tokio::test]
async fn a_connection_is_used_again() {
    let (client, heads) = server(vec![(ONE, false), (TWO, true)]).await;
    assert_eq!(client.read::<u8>("/a").await.unwrap(), 1);
    assert_eq!(client.read::<u8>("/b").await.unwrap(), 2);
    let heads = heads.lock().await;
    assert_eq!(heads.iter().filter(|head| *head == "connected").count(), 1);
    assert!(heads[1].starts_with("GET /a HTTP/1.1\r\n"));
    assert!(heads[1].contains("authorization: Bearer secret\r\n"));
}

#[tokio::test]
async fn a_direct_connection_that_was_closed_is_noticed_at_once() {
    let (client, _) =
        server(vec![("HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 1\r\n\r\n1", true)])
            .await;
    let mut direct = client.connect().await.unwrap();
    assert_eq!(direct.post("/a", Bytes::new(), PATIENCE).await.unwrap().0, StatusCode::PAYLOAD_TOO_LARGE);
    let error = direct.post("/a", Bytes::new(), PATIENCE).await.unwrap_err();
    assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
    assert!(error.to_string().contains("broke"), "{error}");
}

#[tokio::test]
async fn a_connection_that_was_closed_is_replaced() {
    let (client, heads) = server(vec![(ONE, true), (TWO, true)]).await;
    assert_eq!(client.read::<u8>("/a").await.unwrap(), 1);
    // The close may be seen before or after the next call begins; a call that was not sent yet must not fail.
    while client.idle.lock().unwrap().iter().any(|kept| !kept.is_closed()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.read::<u8>("/b").await.unwrap(), 2);
    assert_eq!(heads.lock().await.iter().filter(|head| *head == "connected").count(), 2);
}

#[tokio::test]
async fn a_problem_becomes_an_error_with_its_code() {
    const GONE: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 93\r\n\r\n\
        {\"type\":\"t\",\"title\":\"t\",\"status\":404,\"code\":\"not_found\" ,\"detail\":\"no message has the id a\"}  ";
    let (client, _) = server(vec![(GONE, true)]).await;
    let error = client.read::<u8>("/a").await.err().unwrap();
    assert_eq!((error.status(), error.code()), (Some(404), Some(ErrorCode::NotFound)));
    assert_eq!(error.to_string(), "no message has the id a [not_found]");
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::new(&url).unwrap();
    let error = client.read::<u8>("/").await.err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }) && error.is_transient(), "{error:?}");
    assert!(error.to_string().contains(&url) && !error.is_maybe_done(), "{error}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_unreachable_and_not_half_an_answer() {
    let (client, _) = server(vec![("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1", true)]).await;
    let error = client.read::<u8>("/").await.err().unwrap();
    assert!(matches!(error, Error::NoAnswer { .. }) && error.is_maybe_done(), "{error:?}");
}

#[tokio::test]
async fn somebody_elses_answer_is_an_error() {
    let (client, _) = server(vec![("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", true)]).await;
    let error = client.read::<u8>("/").await.err().unwrap();
    assert!(matches!(error, Error::UnexpectedAnswer { .. }), "{error:?}");
    assert!(error.to_string().contains("another program"), "{error}");
}

#[tokio::test]
async fn lines_come_one_by_one() {
    const LINES: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
        4\r\n{}\n{\r\n2\r\n}\n\r\n0\r\n\r\n";
    let (client, heads) = server(vec![(LINES, true)]).await;
    let mut lines = client.post_lines("/batch", Bytes::new()).await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap(), "{}");
    assert_eq!(lines.next().await.unwrap().unwrap(), "{}");
    assert!(lines.next().await.unwrap().is_none());
    assert!(heads.lock().await[1].contains("content-type: application/x-ndjson\r\n"));
}

#[tokio::test]
async fn a_server_that_falls_silent_in_the_middle_of_an_answer_is_given_up() {
    const HALF: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{}\n{\r\n";
    let (client, _heads) = server(vec![(HALF, false), (ONE, true)]).await;
    let client = Client { silence_max: Duration::from_millis(50), ..client };
    let mut lines = client.post_lines("/v1/messages/batch", Bytes::new()).await.unwrap();
    // On a slow machine even the first line may come too late.
    let failed = async {
        loop {
            match lines.next().await {
                Ok(line) => assert_eq!(line.unwrap(), "{}"),
                Err(error) => return error,
            }
        }
    };
    let error = timeout(PATIENCE / 2, failed).await.expect("a server that is silent is given up");
    assert!(error.is_transient() && error.to_string().contains("sent nothing"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_no_http_came_after_the_call_was_sent() {
    const TLS_ALERT: &str = "\x15\x03\x03\x00\x02\x02\x50\r\n\r\n";
    let (client, _) = server(vec![(TLS_ALERT, true)]).await;
    let error = client.read::<u8>("/").await.err().unwrap();
    assert!(matches!(error, Error::WrongScheme { instead: "https", .. }), "{error:?}");
    assert!(error.is_maybe_done() && !error.is_transient());
    let handshake = Error::WrongScheme { url: "https://duly".into(), instead: "http" };
    assert!(!handshake.is_maybe_done(), "without a handshake nothing is sent");
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_in_time_was_not_called() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let client = Client::new(&url).unwrap().timeout(Duration::from_millis(50));
    let error = client.read::<u8>("/").await.err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }) && !error.is_maybe_done(), "{error:?}");
}

/// As those of a server that restarts do.
#[tokio::test]
async fn a_tls_handshake_that_breaks_off_is_no_matter_of_trust_and_was_not_called() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("https://{}", server.local_addr().unwrap())).unwrap();
    let hang_up = async {
        let (mut stream, _) = server.accept().await.unwrap();
        stream.read_u8().await.unwrap();
    };
    let (answer, ()) = tokio::join!(client.read::<u8>("/"), hang_up);
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.is_transient(), "{error:?}");
    assert!(!error.is_maybe_done());
}

#[tokio::test]
async fn a_connection_that_spoke_http_is_not_called_with_the_wrong_scheme() {
    let (client, _) = server(vec![(ONE, false), ("no HTTP\r\n\r\n", true)]).await;
    assert_eq!(client.read::<u8>("/a").await.unwrap(), 1);
    let error = client.read::<u8>("/b").await.err().unwrap();
    assert!(matches!(error, Error::NoAnswer { .. }) && error.is_maybe_done(), "{error:?}");
}

#[tokio::test]
async fn events_of_a_server_that_is_gone_without_a_word_are_given_up() {
    const COMMENT: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n:\n\n\r\n";
    let (client, _heads) = server(vec![(COMMENT, false), (ONE, true)]).await;
    assert_eq!(client.events_silence_max, crate::wire::EVENTS_KEEP_ALIVE * 4);
    let client = Client { events_silence_max: Duration::from_millis(50), ..client };
    let mut events = client.events(&crate::EventFilter::default()).await.unwrap();
    let next = timeout(PATIENCE / 2, events.next()).await.expect("a server that is silent is given up");
    let error = next.err().unwrap();
    assert!(matches!(error, Error::NoAnswer { .. }) && error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("sent nothing"), "{error}");
}

/// Sends a batch of so many messages; its answer is `lines`.
async fn batch_of(messages: usize, lines: String) -> Result<Vec<crate::wire::BatchResult>, Error> {
    let length = lines.len();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{lines}");
    let (client, _) = server(vec![(&*answer.leak(), false), (ONE, true)]).await;
    client.send_batch(&vec![crate::wire::NewMessage::to("a"); messages]).await
}

#[tokio::test]
async fn a_batch_has_no_more_answers_than_messages() {
    const REFUSED: &str = "{\"error\":{\"code\":\"bad_topic\",\"detail\":\"no\"}}\n";
    assert_eq!(batch_of(1, REFUSED.into()).await.unwrap().len(), 1);
    let error = batch_of(1, REFUSED.repeat(2)).await.err().unwrap();
    assert!(matches!(error, Error::UnexpectedAnswer { .. }) && error.is_maybe_done(), "{error:?}");
    assert!(error.to_string().contains("more answers"), "{error}");
}

#[tokio::test]
async fn the_answers_to_a_batch_are_bounded_in_bytes() {
    let long = |bytes| format!("{{\"error\":{{\"code\":\"x\",\"detail\":\"{}\"}}}}\n", "x".repeat(bytes));
    assert_eq!(batch_of(2, long(1 << 20).repeat(2)).await.unwrap().len(), 2);
    let error = batch_of(2, long(10 << 20).repeat(2)).await.err().unwrap();
    assert!(matches!(error, Error::UnexpectedAnswer { .. }), "{error:?}");
    assert!(error.to_string().contains("too long"), "{error}");
}

#[test]
fn neither_debug_nor_errors_show_the_token() {
    let client = Client::new("http://host").unwrap().token("secret").unwrap();
    assert_eq!(format!("{client:?}"), "Client { url: \"http://host\", .. }");
    let error = Client::new("http://host").unwrap().token("secret\n").err().unwrap();
    assert!(matches!(error, Error::Invalid(_)) && !error.to_string().contains("secret"), "{error:?}");
}
