use std::net::TcpStream;

use super::*;

#[test]
fn a_broker_has_all_its_listeners_also_after_a_kill() {
    if !installed() {
        return;
    }
    let kafka = Kafka::start_new();
    let all = [kafka.address(), kafka.guarded(), kafka.by_tls(), kafka.guarded_by_tls(), kafka.proxied()];
    let are_open = || all.iter().all(|address| TcpStream::connect(address).is_ok());
    assert!(are_open());
    kafka.kill();
    assert!(TcpStream::connect(kafka.address()).is_err());
    kafka.start();
    assert!(are_open());
    assert!(kafka.log().matches(READY).count() == 2 && kafka.certificate().is_file());
}
