//! The server with its messages in a real database.

use duly_server::config::{Config, Secret, SqlServer, SqlSetup, StoreKind, StoreSetup};
use serde_json::json;
use testkit::servers::{
    mysql::{self, Mysql},
    postgres::{self, Postgres},
};

use crate::bed::Bed;

/// A server of one make, which only this test has.
enum Server {
    Mysql(Mysql),
    Postgres(Postgres),
}

impl Server {
    fn all() -> Vec<Self> {
        let mysql = mysql::installed().then(|| Self::Mysql(Mysql::single()));
        let postgres = postgres::installed().then(|| Self::Postgres(Postgres::single()));
        mysql.into_iter().chain(postgres).collect()
    }

    fn database(&self) -> SqlSetup {
        let (server, url) = match self {
            Self::Mysql(server) => (SqlServer::Mysql, server.fresh_database()),
            Self::Postgres(server) => (SqlServer::Postgres, server.fresh_database()),
        };
        SqlSetup { url: Secret::new(url), ..SqlSetup::of(server) }
    }

    fn kill(&self) {
        match self {
            Self::Mysql(server) => server.kill(),
            Self::Postgres(server) => server.kill(),
        }
    }

    fn start(&self) {
        match self {
            Self::Mysql(server) => server.start(),
            Self::Postgres(server) => server.start(),
        }
    }
}

fn in_database(setup: &SqlSetup, config: &mut Config) {
    config.store = StoreSetup::of(StoreKind::Sql(setup.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_in_a_database_and_survive_a_crash_of_it_and_a_restart() {
    for server in Server::all() {
        let database = server.database();
        let mut bed = Bed::with(|config| in_database(&database, config)).await;
        bed.send(json!({"topic": "order", "id": "soon", "json": {"order": 42}, "delay": "200ms"})).await;
        bed.send(json!({"topic": "order", "id": "later", "delay": "1h"})).await;
        let received = bed.receive("order", 10).await;
        assert_eq!((received.len(), received[0]["id"].as_str()), (1, Some("soon")));
        let ack = json!({"receipts": [received[0]["receipt"]]}).to_string();
        let answer = bed.post("/v1/queues/order/ack", ack).await;
        assert_eq!(answer.json()["results"][0]["outcome"], "done", "{answer:?}");
        let ready = bed.get("/readyz").await;
        assert!(ready.json()["durability"].as_str().unwrap().starts_with("database: committed"), "{ready:?}");

        server.kill();
        server.start();
        bed.restart().await;
        assert_eq!(bed.get("/v1/messages/soon").await.json()["state"], "delivered");
        bed.post("/v1/messages/later/fire", "").await;
        assert_eq!(bed.receive("order", 10).await[0]["id"], "later");
    }
}
