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
        "and the proxy is where clients are told to come"
    );
    rocketmq.kill();
    assert!(!is_open(rocketmq.broker()));
    rocketmq.start();
    assert!(is_open(rocketmq.broker()));
}
