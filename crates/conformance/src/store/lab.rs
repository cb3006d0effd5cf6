//! How a suite comes to its stores, and how each is restarted: a [`Lab`] is the factory of one kind of store, a [`StoreFixture`] one store with
//! its data and its server, [`Keep`] what it retains, and a [`StoreHarness`] a store with the clock of a case.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use duly_core::{Now, Store};

use super::{
    cluster::Cluster,
    harness::{BEGIN, Keep, StoreHarness},
};

/// One store's data, and the store opened on it.
#[async_trait]
pub trait StoreFixture: Send + Sync {
    /// The store as it is open now.
    fn store(&self) -> Arc<dyn Store>;

    /// Closes the store cleanly and opens it again.
    async fn reopen(&mut self, now: Now);

    /// The process dies without a word; another one opens the store.
    async fn crash(&mut self, now: Now);
}

/// Wraps every store that a lab opens, e.g. to plant a bug.
pub type Wrap = Arc<dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync>;

/// A fixture being made.
pub type FixtureFuture = Pin<Box<dyn Future<Output = Box<dyn StoreFixture>> + Send>>;

/// Makes fresh stores of one kind for the cases of the suites.
pub struct Lab {
    make: Box<dyn Fn(Keep, Now) -> FixtureFuture + Send + Sync>,
    /// Data for several nodes, if a server has it.
    shared: Option<Box<dyn Fn() -> Box<dyn ServerStore> + Send + Sync>>,
    wrap: Wrap,
    installed: fn() -> bool,
}

impl Lab {
    /// A lab whose stores `make` makes: each call a fresh and empty one.
    pub fn new(make: impl Fn(Keep, Now) -> FixtureFuture + Send + Sync + 'static) -> Self {
        Self { make: Box::new(make), shared: None, wrap: Arc::new(|store| store), installed: || true }
    }

    /// A lab of stores on a server that may not be installed; `installed` says so out loud.
    pub fn on_a_server<S: ServerStore>(
        installed: fn() -> bool,
        make: impl Fn(Keep) -> S + Send + Sync + 'static,
    ) -> Self {
        let make = Arc::new(make);
        let shared = make.clone();
        let shared = move || Box::new(shared(Keep::default())) as Box<dyn ServerStore>;
        let alone = Self::new(move |keep, now| on_server(make(keep), now));
        Self { shared: Some(Box::new(shared)), installed, ..alone }
    }

    /// The same lab with every store wrapped.
    pub fn wrapped(self, wrap: Wrap) -> Self {
        Self { wrap, ..self }
    }

    /// Whether its cases can run.
    pub fn is_installed(&self) -> bool {
        (self.installed)()
    }

    /// A fresh store in a harness.
    pub async fn harness(&self) -> StoreHarness {
        self.harness_with(Keep::default()).await
    }

    /// A fresh store that keeps so much.
    pub async fn harness_with(&self, keep: Keep) -> StoreHarness {
        StoreHarness::new((self.make)(keep, BEGIN).await, self.wrap.clone())
    }

    /// A fresh store that several nodes can open.
    pub fn cluster(&self) -> Cluster {
        let shared = self.shared.as_ref().expect("a store on a server: no other is opened by several nodes");
        Cluster::new(shared(), self.wrap.clone())
    }
}

/// A store that is opened on a server.
#[async_trait]
pub trait ServerStore: Send + Sync + 'static {
    /// Opens it as the process `instance` of the node `node`.
    async fn open(&self, node: &str, instance: u64, now: Now) -> Arc<dyn Store>;
}

/// The node of a store that has one.
const NODE: &str = "node";

/// The data of a store on a server. Each opening is that of another process.
struct ServerFixture<S> {
    at: S,
    store: Arc<dyn Store>,
}

/// A fresh store on a server.
fn on_server(at: impl ServerStore, now: Now) -> FixtureFuture {
    Box::pin(async move {
        let store = at.open(NODE, fresh_number(), now).await;
        Box::new(ServerFixture { at, store }) as Box<dyn StoreFixture>
    })
}

#[async_trait]
impl<S: ServerStore> StoreFixture for ServerFixture<S> {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn reopen(&mut self, now: Now) {
        self.store.close().await.unwrap();
        self.crash(now).await;
    }

    async fn crash(&mut self, now: Now) {
        self.store = self.at.open(NODE, fresh_number(), now).await;
    }
}

/// A number that no other store of this process has.
pub fn fresh_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
