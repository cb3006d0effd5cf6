//! A server, a target that refuses what it is told to, and a browser before it.

use std::{net::SocketAddr, time::Duration};

use duly::Receive;
use duly_server::{
    config::{Config, StoreSetup},
    serve::{self, Running},
};
use serde_json::{Value, json};
use testkit::servers::chromium;

use crate::browser::{Browser, Window};

/// One message, however long it takes on a slow machine.
pub(crate) const ONE: Receive =
    Receive { max: 1, wait: Duration::from_secs(60), lease: Duration::from_secs(60) };

pub(crate) struct Bed {
    pub(crate) browser: Browser,
    running: Running,
    _folder: tempfile::TempDir,
}

impl Bed {
    /// None if there is no Chromium here; that has been said out loud.
    pub(crate) async fn new(window: Window) -> Option<Self> {
        Self::with(window, |_| {}).await
    }

    pub(crate) async fn with(window: Window, set: impl FnOnce(&mut Config)) -> Option<Self> {
        if !chromium::installed() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            store: StoreSetup::in_folder(folder.path().join("data")),
            ..Config::default()
        };
        set(&mut config);
        let running = serve::start(config).await.unwrap();
        let browser = Browser::open(&format!("http://{}/", running.addr()), window).await;
        Some(Self { browser, running, _folder: folder })
    }

    pub(crate) fn duly(&self) -> &duly::Duly {
        self.running.duly()
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.running.addr()
    }

    pub(crate) fn url(&self, screen: &str) -> String {
        format!("http://{}/{screen}", self.running.addr())
    }

    pub(crate) async fn screen(&self, screen: &str) {
        self.browser.go(&self.url(screen)).await;
    }

    /// Ends the test: nothing was said in the browser's console, nobody else was called.
    pub(crate) async fn was_quiet(self) {
        self.browser.was_quiet(&self.url("")).await;
        self.running.stop().await.unwrap();
    }

    /// The totals that the tests look at.
    pub(crate) async fn totals(&self) -> Value {
        let totals = self.duly().totals().await.unwrap();
        json!({"pending": totals.pending, "cancelled": totals.cancelled, "dead": totals.dead, "delivered": totals.delivered})
    }
}
