//! `duly doctor` on real databases and brokers, good and bad.

use std::{net::TcpListener, time::Duration};

use lapin::{
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use serde_json::Value;
use testkit::{
    servers::{
        mysql::{self, Mysql},
        nats::{self, Nats},
        postgres::{self, Postgres},
        rabbitmq, redis, wait_until,
    },
    tls::ClientCertificate,
};

use crate::{
    Folder,
    commands::{duly, json, stdout},
};

/// What the doctor says of a store with these settings: state and words of each finding of `check`.
fn doctor(store: &str, check: &str) -> (bool, Vec<(String, String)>) {
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = listener.local_addr().expect("its address");
    drop(listener);
    folder
        .write("duly.toml", &format!("listen = \"{listen}\"\n[limits]\nconnections = 10\n[store]\n{store}"));
    let report = duly(&folder, &["doctor", "-o", "json"]);
    assert!(!stdout(&report).contains("planted"), "{}", stdout(&report));
    let report = json(&report);
    let word = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    let findings =
        report["findings"].as_array().into_iter().flatten().filter(|finding| finding["check"] == check);
    let findings = findings.map(|finding| {
        (word(finding, "state"), format!("{} → {}", word(finding, "detail"), word(finding, "remedy")))
    });
    (report["ok"] == true, findings.collect())
}

#[track_caller]
fn assert_finding(findings: &[(String, String)], state: &str, words: &str) {
    assert!(
        findings.iter().any(|(is, said)| is == state && said.contains(words)),
        "{state} {words}: {findings:#?}"
    );
}

#[test]
fn the_doctor_names_what_of_mysql_loses_messages() {
    if !mysql::installed() {
        return;
    }
    let server = Mysql::with(mysql::Options {
        more: vec!["--log-bin".into(), "--sync-binlog=1".into()],
        ..Default::default()
    });
    let url = server.fresh_database();
    let store = format!("kind = \"mysql\"\nmysql = \"{url}\"\n");
    let (ok, findings) = doctor(&store, "mysql");
    assert!(ok && findings.len() == 1, "{findings:#?}");
    assert_finding(&findings, "ok", "syncs every commit");
    assert_finding(&doctor(&store, "clock skew").1, "ok", "that of MySQL agree");

    server.run(
        "SET GLOBAL innodb_flush_log_at_trx_commit = 0; SET GLOBAL sync_binlog = 0; SET GLOBAL time_zone = '+02:00'; \
         SET GLOBAL max_allowed_packet = 1048576",
    );
    let (ok, findings) = doctor(&store, "mysql");
    assert!(!ok);
    assert_finding(&findings, "fail", "innodb_flush_log_at_trx_commit = 0");
    assert_finding(&findings, "fail", "sync_binlog = 0");
    assert_finding(&findings, "fail", "max_allowed_packet");
    assert_finding(&findings, "warn", "+02:00, not UTC");
    let (ok, findings) = doctor(&format!("{store}allow_volatile = true"), "mysql");
    assert!(!ok, "messages may be lost, but must be accepted");
    assert_finding(&findings, "warn", "sync_binlog = 0");
}

#[test]
fn the_doctor_names_what_of_postgres_loses_messages() {
    if !postgres::installed() {
        return;
    }
    let more = ["synchronous_commit=off", "fsync=off"].map(str::to_owned).to_vec();
    let server = Postgres::with(postgres::Options { more, ..Default::default() });
    let url = server.fresh_database();
    server.run("ALTER ROLE duly SET timezone = 'Asia/Shanghai'");
    let store = format!("kind = \"postgres\"\npostgres = \"{url}\"\n");
    let (ok, findings) = doctor(&store, "postgres");
    assert!(!ok);
    assert_finding(&findings, "fail", "synchronous_commit = off");
    assert_finding(&findings, "fail", "fsync = off");
    assert_finding(&findings, "warn", "Asia/Shanghai, not UTC");
    let (ok, findings) = doctor(&format!("{store}allow_volatile = true"), "postgres");
    assert!(ok, "{findings:#?}");
    assert_finding(&findings, "warn", "store.allow_volatile allows it");
}

#[test]
fn the_doctor_says_why_nobody_lets_it_in() {
    let (ok, findings) =
        doctor("kind = \"mysql\"\nmysql = \"mysql://user:planted@127.0.0.1:1/duly\"", "mysql");
    assert!(!ok);
    assert_finding(&findings, "fail", "mysql://user:***@127.0.0.1:1/duly: the database cannot be reached");
    if !postgres::installed() {
        return;
    }
    let port = postgres::shared().port();
    let store =
        format!("kind = \"postgres\"\npostgres = \"postgres://stranger:planted@127.0.0.1:{port}/duly\"");
    assert_finding(&doctor(&store, "postgres").1, "fail", "does not let this user in");
}

#[test]
fn the_doctor_looks_whether_a_source_has_its_queue_and_takes_nothing() {
    if !rabbitmq::installed() {
        return;
    }
    let broker = rabbitmq::shared();
    let source = |queue: &str, port: u16| {
        let url = format!("amqp://guest:guest@127.0.0.1:{port}");
        let store = "kind = \"embedded\"\n[sources.orders]\nkind = \"rabbitmq\"\nsink = \"queue\"";
        doctor(&format!("{store}\nurl = \"{url}\"\nqueue = \"{queue}\""), "source orders")
    };
    let (ok, findings) = source("doctors-orders", broker.port());
    assert!(!ok);
    assert_finding(&findings, "fail", "doctors-orders");

    testkit::block_on(async {
        let connection = lapin::Connection::connect(&broker.url(), Default::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let none = lapin::types::FieldTable::default;
        channel.queue_declare("doctors-orders".into(), Default::default(), none()).await.unwrap();
        channel.confirm_select(Default::default()).await.unwrap();
        let sent = channel.basic_publish(
            "".into(),
            "doctors-orders".into(),
            Default::default(),
            b"x",
            Default::default(),
        );
        assert!(sent.await.unwrap().await.unwrap().is_ack());
    });
    for _ in 0..2 {
        assert_finding(&source("doctors-orders", broker.port()).1, "ok", "1 messages wait");
    }

    assert_eq!(source("doctors-orders", broker.port()).1.len(), 1, "a classic queue discards nothing");

    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert_finding(&source("doctors-orders", closed).1, "fail", "see whether the broker is up");
}

#[test]
fn the_doctor_names_a_quorum_queue_that_discards_what_comes_back_too_often() {
    if !rabbitmq::installed() {
        return;
    }
    let broker = rabbitmq::shared();
    let text = |text: &str| AMQPValue::LongString(text.into());
    let queues = [
        ("doctors-quorum", vec![("x-queue-type", text("quorum"))]),
        (
            "doctors-kept",
            vec![("x-queue-type", text("quorum")), ("x-dead-letter-exchange", text("amq.fanout"))],
        ),
    ];
    testkit::block_on(async {
        let connection = lapin::Connection::connect(&broker.url(), Default::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        for (name, arguments) in queues {
            let mut table = FieldTable::default();
            for (key, value) in arguments {
                table.insert(key.into(), value);
            }
            let durable = QueueDeclareOptions { durable: true, ..Default::default() };
            channel.queue_declare(name.into(), durable, table).await.unwrap();
        }
    });
    let source = |queue: &str| {
        let store = "kind = \"embedded\"\n[sources.orders]\nkind = \"rabbitmq\"\nsink = \"queue\"";
        let settings = format!("{store}\nurl = \"{}\"\nqueue = \"{queue}\"", broker.url());
        doctor(&settings, "source orders")
    };
    let (ok, findings) = source("doctors-quorum");
    assert!(ok && findings.len() == 2, "{findings:#?}");
    assert_finding(&findings, "ok", "0 messages wait");
    assert_finding(&findings, "warn", "came back 20 times");
    let (ok, findings) = source("doctors-kept");
    assert!(ok && findings.len() == 1, "what comes back too often is kept elsewhere: {findings:#?}");
}

#[test]
fn a_source_shows_its_certificate_to_a_broker_that_wants_one() {
    if !rabbitmq::installed() {
        return;
    }
    let (folder, clients) = (Folder::new(), ClientCertificate::new());
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let ca = folder.write("cert.pem", &made.cert.pem());
    let key = folder.write("key.pem", &made.signing_key.serialize_pem());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let broker = rabbitmq::Rabbitmq::with(&format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {}\nssl_options.certfile = {}\n\
         ssl_options.keyfile = {}\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true",
        clients.authority().display(),
        ca.display(),
        key.display()
    ));
    // It listens for TLS a moment after it is there for everybody else.
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until("RabbitMQ listens for TLS", Duration::from_secs(60), listens);
    testkit::block_on(async {
        let connection = lapin::Connection::connect(&broker.url(), Default::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.queue_declare("orders".into(), Default::default(), Default::default()).await.unwrap();
    });
    let source = |own: &str| {
        let store = "kind = \"embedded\"\n[sources.orders]\nkind = \"rabbitmq\"\nsink = \"queue\"\nqueue = \"orders\"";
        let url = format!("url = \"amqps://guest:guest@127.0.0.1:{port}\"\nca = '{}'", ca.display());
        doctor(&format!("{store}\n{url}\n{own}"), "source orders").1
    };
    assert_finding(&source(&clients.settings()), "ok", "0 messages wait");
    assert_finding(&source(""), "fail", "see whether the broker is up");
    assert_finding(&source(&ClientCertificate::new().settings()), "fail", "see whether the broker is up");
}

#[test]
fn the_doctor_names_the_topics_of_a_sink_that_its_broker_would_not_take() {
    let findings_of = |sink: &str, topics: &str| {
        let store = "kind = \"embedded\"\n[sinks.orders]";
        doctor(&format!("{store}\n{sink}\ntopics = {topics}"), "sink orders").1
    };
    if rabbitmq::installed() {
        let broker = rabbitmq::shared();
        testkit::block_on(async {
            let connection = lapin::Connection::connect(&broker.url(), Default::default()).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            channel
                .queue_declare("doctors-queue".into(), Default::default(), Default::default())
                .await
                .unwrap();
            let kind = lapin::ExchangeKind::Topic;
            for exchange in ["allowed", "doctors-exchange"] {
                let made = channel.exchange_declare(
                    exchange.into(),
                    kind.clone(),
                    Default::default(),
                    Default::default(),
                );
                made.await.unwrap();
            }
        });
        let by = |user: &str, topics: &str| {
            let url = format!("url = \"amqp://{user}@127.0.0.1:{}\"", broker.port());
            findings_of(&format!("kind = \"rabbitmq\"\n{url}"), topics)
        };
        let known = "[\"doctors-queue\", \"doctors-exchange/paid\", \"nobody*\"]";
        assert_eq!(by("guest:guest", known).len(), 1, "all is well, and a pattern names no topic");
        let missing = by("guest:guest", "[\"doctors-queue\", \"no-such-queue\", \"no-such-exchange/x\"]");
        assert_finding(&missing, "warn", "no queue \"no-such-queue\"");
        assert_finding(&missing, "warn", "no exchange \"no-such-exchange\"");
        assert_eq!(missing.len(), 3, "{missing:#?}");
        let (user, password) = rabbitmq::FEW;
        let few = by(&format!("{user}:{password}"), "[\"allowed/a\", \"doctors-exchange/paid\"]");
        assert_finding(&few, "warn", "may not publish to the exchange \"doctors-exchange\"");
        assert_eq!(few.len(), 2, "{few:#?}");
    }
    if redis::installed() {
        let server = redis::Redis::single();
        server.run::<()>(&["SET", "text", "x"]);
        let words = ["ACL", "SETUSER", "few", "on", ">secret", "~orders", "~text", "~duly:*", "+@all"];
        server.run::<()>(&words);
        let url = server.url().replace("redis://", "redis://few:secret@");
        let found = findings_of(
            &format!("kind = \"redis_streams\"\nurl = \"{url}\""),
            "[\"orders\", \"text\", \"mail\"]",
        );
        assert_finding(&found, "warn", "\"text\" is a string");
        assert_finding(&found, "warn", "may not write the stream \"mail\"");
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(server.run::<Vec<String>>(&["KEYS", "*"]) == ["text"], "nothing is written");
    }
    if nats::installed() {
        let server = Nats::single();
        let found = findings_of(&format!("kind = \"nats\"\nurl = \"{}\"", server.url()), "[\"orders\"]");
        assert_finding(&found, "warn", "no stream has the subject \"orders\"");
        assert_finding(&found, "ok", "what this user may publish to shows when a message is sent");
    }
}

#[test]
fn the_doctor_names_a_stream_of_nats_that_forgets_ids_before_the_last_retry() {
    if !nats::installed() {
        return;
    }
    let server = Nats::single();
    testkit::block_on(async {
        let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let config = async_nats::jetstream::stream::Config {
            name: "ORDERS".into(),
            subjects: vec!["orders".into()],
            ..Default::default()
        };
        context.create_stream(config).await.unwrap();
    });
    let sink = |retry: &str| {
        let store = format!(
            "kind = \"embedded\"\n[sinks.orders]\nkind = \"nats\"\nurl = \"{}\"\n{retry}",
            server.url()
        );
        doctor(&store, "sink orders").1
    };
    assert_finding(&sink(""), "warn", "ORDERS");
    let findings = sink("retry = { max = \"1m\" }");
    assert_finding(&findings, "ok", "answers");
    assert_eq!(findings.len(), 1, "a minute is within the two that NATS remembers: {findings:#?}");
}

#[test]
fn the_doctor_finds_damage_in_the_data_folder_and_leaves_it_as_it_is() {
    let folder = Folder::new();
    let data = folder.0.path().join("duly-data");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let duly = duly::Duly::open(&data).await.expect("a store");
        for n in 0..20 {
            let message =
                duly::Message::to("order").id(format!("m{n}")).text("x".repeat(500)).after(duly::hours(2));
            duly.send(message).await.expect("accepted");
        }
        duly.shutdown().await.expect("closed");
    });
    let inspect = || {
        let report = json(&duly(&folder, &["doctor", "--data", "duly-data", "-o", "json"]));
        let all = report["findings"].as_array().expect("findings").clone();
        all.into_iter().find(|finding| finding["check"] == "stored messages").expect("it looks at them")
    };
    let sound = inspect();
    assert_eq!(sound["state"], "ok", "{sound}");
    assert!(sound["detail"].as_str().expect("words").starts_with("20 "), "{sound}");
    // A bit of every file that holds messages.
    let mut flipped = Vec::new();
    for entry in std::fs::read_dir(&data).expect("files") {
        let path = entry.expect("a file").path();
        let mut bytes = std::fs::read(&path).expect("read");
        let Some(at) = bytes.windows(100).position(|window| window == [b'x'; 100]) else { continue };
        bytes[at + 50] ^= 1;
        std::fs::write(&path, &bytes).expect("written");
        flipped.push((path, bytes));
    }
    assert!(!flipped.is_empty());
    let damaged = inspect();
    assert_eq!(damaged["state"], "fail", "{damaged}");
    for (path, bytes) in flipped {
        assert!(std::fs::read(&path).expect("read") == bytes, "{} was changed", path.display());
    }
}
