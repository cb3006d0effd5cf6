//! Nodes that share a database, as processes: one can be killed.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use duly_client::wire::NodesAnswer;
use testkit::{
    http::{HttpServer, Reply, Request},
    servers::{
        mysql::{self, Mysql},
        postgres::{self, Postgres},
        program::Program,
        wait_until,
    },
};

use crate::{duly, run};

const LIMIT: Duration = Duration::from_secs(60);
const MESSAGES: usize = 32;

fn node(name: &str, kind: &str, url: &str, hook: &str) -> Program {
    let node = Program::new(env!("CARGO_BIN_EXE_duly"));
    let settings = format!(
        "listen = \"127.0.0.1:{}\"\n[cluster]\nnode = \"{name}\"\n[store]\nkind = \"{kind}\"\n{kind} = \"{url}\"\nlease = \"2s\"\n\
         [sinks.hook]\nkind = \"webhook\"\nurl = \"{hook}\"\nallow_private = true\ntimeout = 1500\nrequest_timeout = 1000\n",
        node.port()
    );
    let file = node.folder().join("duly.toml");
    fs::write(&file, settings).unwrap();
    node.start(&["serve".into(), "--config".into(), file.display().to_string()]);
    node
}

/// What the node says of all nodes; nothing while it does not answer.
fn nodes(node: &Program) -> NodesAnswer {
    let url = format!("http://127.0.0.1:{}", node.port());
    let asked = run(duly().args(["nodes", "-o", "json", "--url", &url]), b"");
    serde_json::from_str(&asked.out).unwrap_or_default()
}

fn a_killed_node_leaves_its_work(kind: &str, url: &str) {
    let arrived: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let theirs = arrived.clone();
    let hook = HttpServer::start(move |request: &Request| {
        theirs.lock().unwrap().extend(request.header("duly-id"));
        Reply::status(204, "")
    });
    let [first, second] = ["first", "second"].map(|name| node(name, kind, url, &hook.url()));
    wait_until("each has its half", LIMIT, || nodes(&second).nodes.iter().map(|node| node.shards).eq([8, 8]));
    let shards = nodes(&second).shards;
    let owned = |name: &str| {
        let is_its = |owner: &duly_client::wire::ShardOwner| owner.lane == "hook" && owner.node == name;
        shards.iter().filter(|shard| shard.owners.len() == 1 && is_its(&shard.owners[0])).count()
    };
    assert_eq!([owned("first"), owned("second")], [8, 8], "{shards:?}");
    let lines: String = (0..MESSAGES)
        .map(|n| format!("{{\"sink\":\"hook\",\"topic\":\"t\",\"id\":\"m{n}\",\"delay\":\"300ms\"}}\n"))
        .collect();
    let url = format!("http://127.0.0.1:{}", second.port());
    let sent = run(duly().args(["import", "-", "--url", &url]), lines.as_bytes());
    assert_eq!(sent.code, 0, "{sent:?}");
    first.kill();
    wait_until("all arrive", LIMIT, || arrived.lock().unwrap().len() == MESSAGES);
}

#[test]
fn a_node_that_is_killed_leaves_its_work_to_the_others() {
    if mysql::installed() {
        a_killed_node_leaves_its_work("mysql", &Mysql::single().fresh_database());
    }
    if postgres::installed() {
        a_killed_node_leaves_its_work("postgres", &Postgres::single().fresh_database());
    }
}
