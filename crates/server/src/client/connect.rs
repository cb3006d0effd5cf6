//! Connections, plain and over TLS.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::Target;
use crate::cli::Failure;

/// Longer than any healthy network takes; shorter than people wait.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

impl Target {
    /// Opens a connection: it takes one request after the other.
    pub(crate) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let url = self.url();
        match timeout(CONNECT_WITHIN, self.dial()).await {
            Ok(done) => done,
            Err(_) => {
                Err(Failure::unreachable(format!("nobody answers at {url}; is that the right address?")))
            }
        }
    }

    async fn dial(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let url = self.url();
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|e| {
            Failure::unreachable(format!(
                "cannot reach Duly at {url}: {e}. Start one with `duly serve`, or name another with --url"
            ))
        })?;
        // Requests are small and go out whole: waiting to fill a packet would only make them late.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.shake_hands(stream).await };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| Failure::usage(format!("{:?} cannot be the name of an https server", self.host)))?;
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await.map_err(|e| {
            Failure::unreachable(format!(
                "{url} is not trusted: {e}. If its certificate is your own, name its root with --ca"
            ))
        })?;
        self.shake_hands(stream).await
    }

    async fn shake_hands<S>(&self, stream: S) -> Result<SendRequest<Full<Bytes>>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| Failure::unreachable(format!("cannot talk to {}: {e}", self.url())))?;
        // Its end shows at the sender, where somebody is told.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }
}
