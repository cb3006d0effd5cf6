//! A proxy that gives Duly a path of its own, as the guide says.

use std::net::SocketAddr;

use http::{HeaderValue, Request, Response, header};
use hyper::{body::Incoming, client, server, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// Where the page is below it.
pub(crate) const PATH: &str = "/duly";

/// Starts one before the server at `to`, and says where it listens.
pub(crate) async fn before(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(move |request| pass(to, request));
            tokio::spawn(server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    own
}

/// Passes a call on without the path, under another name of the server.
async fn pass(to: SocketAddr, mut request: Request<Incoming>) -> Result<Response<Incoming>, hyper::Error> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let below = path.strip_prefix(PATH).expect("nothing else is asked for").to_owned();
    *request.uri_mut() = below.parse().unwrap();
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}
