use super::*;

#[test]
fn data_and_port_stay_over_a_kill() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (url, pid) = (redis.url(), redis.pid());
    redis.run::<()>(&["SET", "key", "value"]);
    redis.restart();
    assert_eq!((redis.url(), redis.run::<String>(&["GET", "key"])), (url, "value".into()));
    assert_ne!(redis.pid(), pid);
    redis.kill();
    assert!(redis.try_connection().is_err());
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let mut connection = redis.connection();
    connection.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    redis.pause();
    assert!(redis::cmd("PING").query::<String>(&mut connection).is_err());
    redis.cont();
    assert_eq!(redis.run::<String>(&["PING"]), "PONG");
}

#[test]
fn options_reach_the_server() {
    if !installed() {
        return;
    }
    let redis = Redis::with(Options {
        aof: false,
        maxmemory: Some(5_000_000),
        policy: "allkeys-lru",
        password: Some("secret".into()),
        more: vec!["--databases".into(), "1".into()],
    });
    let setting = |name| redis.run::<(String, String)>(&["CONFIG", "GET", name]).1;
    assert_eq!(
        ["appendonly", "maxmemory", "maxmemory-policy", "databases"].map(setting),
        ["no", "5000000", "allkeys-lru", "1"]
    );
    assert!(redis.url().contains("secret"), "and without it nobody gets in");
}

#[test]
fn the_shared_server_is_one() {
    if !installed() {
        return;
    }
    assert_eq!(shared().url(), std::thread::spawn(|| shared().url()).join().unwrap());
    assert_eq!(shared().run::<String>(&["PING"]), "PONG");
}

#[test]
fn a_panic_kills_the_server() {
    if !installed() {
        return;
    }
    let (tell, told) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let redis = Redis::single();
        tell.send(redis.port()).unwrap();
        panic!("on purpose");
    });
    assert!(test.join().is_err());
    let port = told.recv().unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}
