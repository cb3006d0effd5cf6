use std::net::TcpStream;

use super::*;

#[test]
fn a_pair_is_there_also_after_a_kill() {
    if !installed() {
        return;
    }
    let rocketmq = Rocketmq::with(Options { proxied: true, ..Options::default() });
    let is_open = |address: String| TcpStream::connect(address).is_ok();
    assert!(is_open(rocketmq.namesrv()) && is_open(rocketmq.broker()));
    assert!(
        is_open(format!("{PROXIED}:{}", rocketmq.broker.port())),
        "and the proxy is where clients are sent"
    );
    rocketmq.kill();
    assert!(!is_open(rocketmq.broker()));
    rocketmq.start();
    assert!(is_open(rocketmq.broker()));
}

#[test]
fn both_name_servers_know_both_masters_and_the_slave() {
    if !installed() {
        return;
    }
    let cluster = Cluster::with(&[]);
    let [a, b] = cluster.masters();
    cluster.make_topic("orders", &[a, b]);
    for namesrv in cluster.namesrvs() {
        let reply = remoting::ask(&namesrv.address(), GET_BROKER_CLUSTER_INFO, &[]).unwrap();
        for broker in [a, b, cluster.slave()] {
            assert!(reply.contains(&broker.address()), "{reply}");
        }
    }
    a.kill();
    cluster.wait_for_route("orders", |route| !route.contains(&a.address()));
    a.start();
    cluster.wait_for_route("orders", |route| route.contains(&a.address()));
}
