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

/// A plain or an encrypted stream: who talks HTTP over it need not know.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(super) type Io = TokioIo<Box<dyn Stream>>;

impl Target {
    /// Opens a connection that lives on its own: it takes one request after the other.
    pub(super) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let (sender, connection) = self.shake_hands().await?;
        // Its end shows at the sender, where somebody is told.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Opens a connection; whoever asked for it must drive it.
    pub(super) async fn shake_hands(
        &self,
    ) -> Result<(SendRequest<Full<Bytes>>, http1::Connection<Io, Full<Bytes>>), Failure> {
        let url = self.url();
        let stream = timeout(CONNECT_WITHIN, self.dial()).await.unwrap_or_else(|_| {
            Err(Failure::unreachable(format!("nobody answers at {url}; is that the right address?")))
        })?;
        http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| Failure::unreachable(format!("cannot talk to {url}: {e}")))
    }

    async fn dial(&self) -> Result<Box<dyn Stream>, Failure> {
        let url = self.url();
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|e| {
            Failure::unreachable(format!(
                "cannot reach Duly at {url}: {e}. Start one with `duly serve`, or name another with --url"
            ))
        })?;
        // Requests are small and go out whole: waiting to fill a packet would only make them late.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| Failure::usage(format!("{:?} cannot be the name of an https server", self.host)))?;
        let stream = TlsConnector::from(tls.clone())
            .connect(name, stream)
            .await
            .map_err(|e| Failure::unreachable(untrusted(url, &e.to_string())))?;
        Ok(Box::new(stream))
    }
}

/// Why no TLS came about, and what to do now.
fn untrusted(url: &str, why: &str) -> String {
    if why.contains("InvalidContentType") {
        return format!("{url} does not speak TLS: call it with http://");
    }
    if why.contains("CaUsedAsEndEntity") {
        return format!(
            "{url} is not trusted: its certificate is that of an authority, and a server needs one that is not. \
             Make it with `-addext basicConstraints=critical,CA:FALSE`, as the security guide shows"
        );
    }
    format!("{url} is not trusted: {why}. If its certificate is your own, name its root with --ca")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_tls_is_told_with_what_to_do() {
        let of = |error: rustls::Error| untrusted("https://duly", &error.to_string());
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(of(plain).ends_with("call it with http://"));
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert!(of(unknown).contains("--ca"));
    }
}
