//! The server with its messages in a real database.

use duly_server::config::{Config, Secret, StoreSetup};
use duly_stores::{SqlConfig, SqlServer, StoreConfig};
use http::Method;
use serde_json::json;
use testkit::servers::{
    mysql::{self, Mysql},
    postgres::{self, Postgres},
    redis,
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

    fn database(&self) -> SqlConfig {
        let (server, url) = match self {
            Self::Mysql(server) => (SqlServer::Mysql, server.fresh_database()),
            Self::Postgres(server) => (SqlServer::Postgres, server.fresh_database()),
        };
        SqlConfig { url: Secret::new(url), ..SqlConfig::of(server) }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Mysql(_) => "mysql",
            Self::Postgres(_) => "postgres",
        }
    }

    fn port(&self) -> u16 {
        match self {
            Self::Mysql(server) => server.port(),
            Self::Postgres(server) => server.port(),
        }
    }

    /// Runs statements as an administrator.
    fn run(&self, database: &SqlConfig, statements: &str) -> String {
        let url = database.url.reveal();
        match self {
            Self::Mysql(server) => server.run_in(url, statements),
            Self::Postgres(server) => server.run_in(url, statements),
        }
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

fn in_database(setup: &SqlConfig, config: &mut Config) {
    config.store = StoreSetup::of(StoreConfig::Sql(setup.clone()));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_message_can_be_cancelled_rescheduled_given_up_and_replayed_and_people_see_it_in_the_table() {
    for server in Server::all() {
        let database = server.database();
        let mut bed = Bed::with(|config| in_database(&database, config)).await;
        let statuses = || {
            server.run(
                &database,
                "SELECT message_id, status, body IS NULL FROM delay_message ORDER BY message_id",
            )
        };
        bed.send(json!({"topic": "q", "id": "cancelled", "body": "x", "delay": "1h"})).await;
        assert_eq!(bed.call(Method::DELETE, "/v1/messages/cancelled", "").await.status, 200);
        assert_eq!(bed.call(Method::DELETE, "/v1/messages/nobody", "").await.code(), "not_found");
        bed.send(json!({"topic": "q", "id": "sooner", "body": "x", "delay": "1h"})).await;
        assert_eq!(bed.call(Method::PATCH, "/v1/messages/sooner", r#"{"delay":"10ms"}"#).await.status, 200);
        let received = bed.receive("q", 10).await;
        assert_eq!((received.len(), received[0]["id"].as_str()), (1, Some("sooner")));
        assert_eq!(bed.call(Method::DELETE, "/v1/messages/sooner", "").await.code(), "too_late");
        bed.post("/v1/queues/q/ack", json!({"receipts": [received[0]["receipt"]]}).to_string()).await;
        bed.send(json!({"topic": "q", "id": "twice", "body": "keep me", "retry": {"attempts": 1}})).await;
        let again = bed
            .post("/v1/messages", json!({"topic": "q", "id": "twice", "body": "keep me"}).to_string())
            .await;
        assert_eq!((again.status.as_u16(), again.json()["duplicate"].clone()), (200, json!(true)));
        let received = bed.receive("q", 10).await;
        bed.post("/v1/queues/q/nack", json!({"receipts": [received[0]["receipt"]]}).to_string()).await;
        let dead = bed.get("/v1/dead").await.json();
        assert_eq!(
            (dead["messages"][0]["id"].clone(), dead["messages"][0]["reason"].clone()),
            (json!("twice"), json!("exhausted"))
        );
        let yes = if matches!(server, Server::Mysql(_)) { ["1", "0"] } else { ["t", "f"] };
        let [removed, kept] = yes;
        assert_eq!(
            statuses(),
            format!("cancelled\tCANCELLED\t{removed}\nsooner\tDELIVERED\t{removed}\ntwice\tFAILED\t{kept}")
        );

        bed.restart().await;
        assert_eq!(bed.get("/v1/messages/twice").await.json()["body"], "keep me");
        assert_eq!(bed.post("/v1/dead/replay", r#"{"ids":["twice"]}"#).await.json()["done"], 1);
        let received = bed.receive("q", 10).await;
        assert_eq!((received[0]["id"].clone(), received[0]["attempt"].clone()), (json!("twice"), json!(1)));
        let stats = bed.get("/v1/stats").await.json();
        assert_eq!(
            (stats["totals"]["accepted"].clone(), stats["totals"]["in_flight"].clone()),
            (json!(3), json!(1)),
            "{stats}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_database_calls_are_answered_503_and_all_goes_on_when_it_is_back() {
    for server in Server::all() {
        let database = server.database();
        let bed = Bed::with(|config| in_database(&database, config)).await;
        bed.send(json!({"topic": "order", "delay": "1h"})).await;
        server.kill();
        let answer = bed.post("/v1/messages", json!({"topic": "order"}).to_string()).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "store_unavailable"),
            "{answer:?}"
        );
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("the database"), "{answer:?}");
        let ready = bed.get("/readyz").await;
        assert_eq!(ready.status, 503);
        assert!(ready.json()["parts"]["store"].as_str().unwrap().contains("the database"), "{ready:?}");
        assert_eq!(ready.json()["parts"]["server"], "ok");
        assert_eq!(bed.get("/livez").await.status, 200);
        server.start();
        bed.until_ready().await;
        bed.send(json!({"topic": "order"})).await;
        assert_eq!(bed.receive("order", 10).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_a_database_and_any_of_them_takes_an_ack() {
    for server in Server::all() {
        let database = server.database();
        let named = |name: &'static str| {
            Bed::with(|config| {
                in_database(&database, config);
                config.node = name.into();
            })
        };
        let (mut first, second) = (named("first").await, named("second").await);
        first.send(json!({"topic": "order", "id": "soon", "delay": "100ms"})).await;
        let received = second.receive("order", 10).await;
        assert_eq!((received.len(), received[0]["id"].as_str()), (1, Some("soon")));
        let ack = json!({"receipts": [received[0]["receipt"]]}).to_string();
        assert_eq!(first.post("/v1/queues/order/ack", ack).await.json()["results"][0]["outcome"], "done");
        assert_eq!(names(&first).await, ["first", "second"]);
        first.stop().await;
        assert_eq!(names(&second).await, ["second"], "it said that it goes");
        let page = second.get("/metrics").await;
        assert!(String::from_utf8_lossy(&page.body).contains("duly_clock_skew_seconds"));
    }
}

async fn names(bed: &Bed) -> Vec<String> {
    let nodes = bed.get("/v1/nodes").await.json();
    nodes["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_takes_the_address_of_a_database() {
    for server in Server::all() {
        let url = server.database().url.reveal().to_owned();
        let duly = match server {
            Server::Mysql(_) => duly::Duly::builder().mysql(url.as_str(), "a").start().await.unwrap(),
            Server::Postgres(_) => duly::Duly::builder().postgres(url.as_str(), "a").start().await.unwrap(),
        };
        assert_eq!(duly.durability(), duly::Durability::Database);
        let id = duly.send(duly::Message::to("order").text("x").after(duly::hours(1))).await.unwrap();
        assert_eq!(duly.cancel(&id).await.unwrap(), duly::Changed::Done { maybe_delivered: false });
        duly.shutdown().await.unwrap();
        let swapped = match server {
            Server::Mysql(_) => duly::Duly::builder().postgres(url.as_str(), "a"),
            Server::Postgres(_) => duly::Duly::builder().mysql(url.as_str(), "a"),
        };
        let error = swapped.start().await.err().unwrap().to_string();
        assert!(error.contains("this is an address of"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_takes_the_addresses_of_redis_and_mysql() {
    if !mysql::installed() || !redis::installed() {
        return;
    }
    let (redis, mysql) = (redis::shared().url(), mysql::shared().fresh_database());
    let duly = duly::Duly::builder().redis_and_mysql(redis, mysql, "a").start().await.unwrap();
    let id = duly.send(duly::Message::to("order").text("x").after(duly::hours(1))).await.unwrap();
    assert_eq!(duly.cancel(&id).await.unwrap(), duly::Changed::Done { maybe_delivered: false });
    duly.shutdown().await.unwrap();
}

/// What the guide tells administrators to run, for another user than the one that the test server may have.
fn granted(server: &Server) -> String {
    let first = if matches!(server, Server::Mysql(_)) { "CREATE DATABASE" } else { "CREATE ROLE" };
    block(first).replace("duly", "guided")
}

/// The statements of the guide that begin with these words.
fn block(first: &str) -> &'static str {
    let guide = include_str!("../../../../docs/guide/sql.md");
    let block = guide.split("```sql\n").find(|block| block.starts_with(first)).unwrap();
    block.split("```").next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_guide_grants_is_enough_and_its_questions_are_answered() {
    for server in Server::all() {
        server.run(&server.database(), &granted(&server));
        let mut database = server.database();
        let (scheme, port) = (server.kind(), server.port());
        database.url =
            Secret::new(format!("{scheme}://guided:choose%20a%20password@127.0.0.1:{port}/guided"));
        let mut bed = Bed::with(|config| in_database(&database, config)).await;
        bed.send(json!({"topic": "order", "id": "soon"})).await;
        assert_eq!(bed.receive("order", 10).await[0]["id"], "soon");
        bed.restart().await;
        let found = duly_stores::sql::inspect(database.url.reveal()).await.unwrap().findings;
        assert!(found.iter().all(|finding| finding.what.contains("time zone")), "{found:?}");

        let dashboard = block("SELECT status");
        let dashboard = match server {
            Server::Mysql(_) => dashboard.to_owned(),
            Server::Postgres(_) => dashboard.replace("UNIX_TIMESTAMP()", "EXTRACT(EPOCH FROM now())"),
        };
        assert!(server.run(&database, &dashboard).starts_with("PENDING\t1"));
    }
}
