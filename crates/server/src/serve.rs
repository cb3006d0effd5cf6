//! A whole server, from its configuration.

use std::net::SocketAddr;

use crate::config::Config;

/// A server that runs.
pub struct Running {
    addr: SocketAddr,
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// Opens the store, starts delivering and listens. Port 0 takes a free one.
pub async fn start(config: Config) -> Result<Running, StartError> {
    Ok(Running { addr: config.listen })
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://…` or `https://…`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Stops cleanly: accepts nothing more, finishes or hands back what is under way.
    pub async fn stop(self) -> Result<(), StartError> {
        Ok(())
    }
}
