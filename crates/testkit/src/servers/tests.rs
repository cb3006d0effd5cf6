use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
};

use super::{mysql::Mysql, postgres::Postgres, *};

#[test]
fn what_is_not_installed_is_found_missing() {
    assert!(find("sh").is_some());
    assert!(find("no-such-server").is_none());
}

/// Set in the process that is killed.
const VICTIM: &str = "DULY_TESTKIT_VICTIM";
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn servers_die_with_the_test_process_also_paused_ones() {
    if !mysql::installed() || !postgres::installed() {
        return;
    }
    if env::var_os(VICTIM).is_some() {
        be_the_victim();
    }
    let name = "servers::tests::servers_die_with_the_test_process_also_paused_ones";
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VICTIM, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let victims = lines.filter_map(|line| Some(line.split_once("victim: ")?.1.to_owned())).next().unwrap();
    let words: Vec<&str> = victims.split(' ').collect();
    let [mariadbd, postgres] = words[..] else { panic!("{victims}") };
    let of_postgres = fs::read_to_string(format!("/proc/{postgres}/task/{postgres}/children")).unwrap();
    assert!(runs(mariadbd) && runs(postgres) && of_postgres.split_whitespace().any(runs));

    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("both are gone", PATIENCE, || !runs(mariadbd) && !runs(postgres));
    // Nobody tells a stopped process that its parent died: the next test process looks for it.
    port_lease::sweep();
    wait_until("so are the children", PATIENCE, || !of_postgres.split_whitespace().any(runs));
}

fn be_the_victim() -> ! {
    let (mysql, postgres) = (Mysql::single(), Postgres::single());
    postgres.pause();
    let [first, second] = [mysql.pid(), postgres.pid()].map(Option::unwrap);
    println!("victim: {first} {second}");
    loop {
        thread::park();
    }
}

/// Of somebody dead whose parent has not yet looked there is a number, but no command.
fn runs(pid: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| !words.is_empty())
}
