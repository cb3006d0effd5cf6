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

use crate::{Error, target::Target};

/// Longer than any healthy network takes; shorter than people wait.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A plain or an encrypted stream: who talks HTTP over it need not know.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) type Io = TokioIo<Box<dyn Stream>>;

impl Target {
    /// Opens a connection that lives on its own: it takes one request after the other.
    pub(crate) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let (sender, connection) = self.shake_hands().await?;
        // Its end shows at the sender, where somebody is told.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// Opens a connection; whoever asked for it must drive it.
    pub(crate) async fn shake_hands(
        &self,
    ) -> Result<(SendRequest<Full<Bytes>>, http1::Connection<Io, Full<Bytes>>), Error> {
        let stream = timeout(CONNECT_WITHIN, self.dial())
            .await
            .unwrap_or_else(|_| Err(self.unreachable(std::io::ErrorKind::TimedOut.into())))?;
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.no_answer(e.to_string()))
    }

    async fn dial(&self) -> Result<Box<dyn Stream>, Error> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|source| self.unreachable(source))?;
        // Requests are small and go out whole: waiting to fill a packet would only make them late.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls()? else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| Error::Invalid(format!("{:?} cannot be the name of an https server", self.host)))?;
        let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|e| {
            match e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
                true => untrusted(self.url(), &e.to_string()),
                // A server that restarts ends handshakes, too.
                false => self.unreachable(e),
            }
        })?;
        Ok(Box::new(stream))
    }

    pub(crate) fn unreachable(&self, source: std::io::Error) -> Error {
        Error::Unreachable { url: self.url().to_owned(), source }
    }

    /// The connection broke after the call began.
    pub(crate) fn broken(&self, why: &dyn std::fmt::Display) -> Error {
        self.no_answer(format!("the connection broke: {why}"))
    }

    /// The connection broke or fell silent after the call began.
    pub(crate) fn no_answer(&self, detail: impl Into<String>) -> Error {
        Error::NoAnswer { url: self.url().to_owned(), detail: detail.into() }
    }
}

/// Why the TLS handshake failed.
fn untrusted(url: &str, why: &str) -> Error {
    let url = url.to_owned();
    if why.contains("InvalidContentType") {
        return Error::WrongScheme { url, instead: "http" };
    }
    let detail = if why.contains("CaUsedAsEndEntity") {
        "its certificate is that of an authority, and a server needs one that is not. Make it with \
         `-addext basicConstraints=critical,CA:FALSE`, as the security guide shows"
            .to_owned()
    } else {
        format!("{why}; if its certificate is your own, trust its root")
    };
    Error::Untrusted { url, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_tls_is_told_with_what_to_do() {
        let of = |error: rustls::Error| untrusted("https://duly", &error.to_string()).to_string();
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(of(plain).ends_with("call it with http://"));
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert!(of(unknown).contains("trust its root"));
    }
}
