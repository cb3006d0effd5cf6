//! The whole at a glance.

use crate::{
    Client, Error,
    messages::encoded,
    wire::{Forecast, LevelsAnswer, Moment, NodesAnswer, Ready, Stats, WhoAnswer},
};

/// The span of a forecast. The default is the server's.
#[derive(Debug, Clone, Default)]
pub struct ForecastSpan {
    /// From then; now unless told otherwise.
    pub from: Option<Moment>,
    /// Until then; an hour after `from` unless told otherwise.
    pub to: Option<Moment>,
    /// In so many equal parts.
    pub buckets: Option<usize>,
}

impl Client {
    /// Totals, rates and how late deliveries were.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.read("/v1/stats").await
    }

    /// How many messages come due when.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn forecast(&self, span: &ForecastSpan) -> Result<Forecast, Error> {
        let query = encoded([
            ("from", span.from.as_ref().map(Moment::to_string)),
            ("to", span.to.as_ref().map(Moment::to_string)),
            ("buckets", span.buckets.map(|buckets| buckets.to_string())),
        ]);
        self.read(&format!("/v1/forecast?{query}")).await
    }

    /// The nodes on the server's store, and who delivers what.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn nodes(&self) -> Result<NodesAnswer, Error> {
        self.read("/v1/nodes").await
    }

    /// The named delays.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn levels(&self) -> Result<LevelsAnswer, Error> {
        self.read("/v1/levels").await
    }

    /// The name and rights of the client's token.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn whoami(&self) -> Result<WhoAnswer, Error> {
        self.read("/v1/whoami").await
    }

    /// Whether the node could accept and deliver a message now. One that could not answers, too: see [`Ready::ready`].
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn ready(&self) -> Result<Ready, Error> {
        let (status, body) = self.raw("/readyz").await?;
        serde_json::from_slice(&body).map_err(|_| Error::refused(status, &body, self.url()))
    }

    /// Whether the process of the node answers, whatever its store does: what [`ready`](Self::ready) is to those who send messages, this is to
    /// those who restart the node.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn live(&self) -> Result<(), Error> {
        let (status, body) = self.raw("/livez").await?;
        if status.is_success() { Ok(()) } else { Err(Error::refused(status, &body, self.url())) }
    }

    /// The metrics of the node, as Prometheus reads them.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn metrics(&self) -> Result<String, Error> {
        let (status, body) = self.raw("/metrics").await?;
        if !status.is_success() {
            return Err(Error::refused(status, &body, self.url()));
        }
        String::from_utf8(body.into()).map_err(|e| self.target().unexpected(e.to_string()))
    }
}
