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
    let (sender, receiver) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let redis = Redis::single();
        sender.send(redis.port()).unwrap();
        panic!("on purpose");
    });
    assert!(test.join().is_err());
    let port = receiver.recv().unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_cluster_of_three_takes_keys_of_every_slot_and_moves_them() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let nodes: Vec<String> = cluster.nodes().iter().map(Redis::url).collect();
    let mut client = redis::cluster::ClusterClient::new(nodes).unwrap().get_connection().unwrap();
    let key = |number: usize| format!("key{number}");
    for number in 0..100 {
        redis::cmd("SET").arg(key(number)).arg(number).query::<()>(&mut client).unwrap();
    }
    let owners: std::collections::BTreeSet<_> =
        (0..100).map(|number| cluster.owner(cluster.slot(&key(number)))).collect();
    assert_eq!(owners.len(), 3);

    let slot = cluster.slot(&key(7));
    let to = (cluster.owner(slot) + 1) % 3;
    cluster.begin_move(slot, to);
    assert_eq!(cluster.move_keys(slot, to, 1), 1);
    cluster.finish_move(slot, to);
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(redis::cmd("GET").arg(key(7)).query::<usize>(&mut client).unwrap(), 7);

    cluster.nodes()[to].restart();
    cluster.wait_until_ok();
    assert_eq!(cluster.nodes()[to].run::<usize>(&["GET", &key(7)]), 7);
}

#[test]
fn sentinels_make_the_replica_the_master() {
    if !installed() {
        return;
    }
    let all = Sentinels::start();
    assert_eq!(all.master(), 0);
    all.pair()[0].run::<()>(&["SET", "key", "value"]);
    assert_eq!(all.pair()[0].run::<u32>(&["WAIT", "1", "5000"]), 1);
    assert_eq!(all.fail_over(), 1);
    assert_eq!(all.master(), 1);
    assert_eq!(all.pair()[1].run::<String>(&["GET", "key"]), "value");
    assert!(all.url().ends_with("/duly"));
}
