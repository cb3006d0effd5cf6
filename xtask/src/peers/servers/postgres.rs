use std::{
    fs, io,
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::{Command, Output},
};

use super::{Sandbox, Server, path_of};

/// With its defaults: every commit is synced before it is answered.
pub(in crate::peers) struct Postgres;

const INSTALL: &str = "apt-get install postgresql";

impl Server for Postgres {
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        &[("initdb", INSTALL), ("postgres", INSTALL), ("psql", INSTALL)]
    }

    fn prepare(&self, sandbox: &Sandbox) -> io::Result<()> {
        if let Some((id, group)) = user()? {
            chown(&sandbox.folder, Some(id), Some(group))?;
        }
        let mut initdb = Command::new(path_of("initdb")?);
        unprivileged(&mut initdb)?;
        initdb.args(["--no-sync", "--auth=trust", "--username=bench", "--encoding=UTF8", "--locale=C"]);
        run(initdb.arg("--pgdata").arg(sandbox.folder.join("data"))).map(|_| ())
    }

    fn program(&self, _place: &Sandbox) -> io::Result<PathBuf> {
        path_of("postgres")
    }

    fn configure(&self, sandbox: &Sandbox, command: &mut Command) -> io::Result<()> {
        unprivileged(command)?;
        command.arg("-D").arg(sandbox.folder.join("data"));
        for setting in [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", sandbox.port),
            format!("unix_socket_directories={}", sandbox.folder.display()),
            // In the data folder, which goes with the server.
            "dynamic_shared_memory_type=mmap".into(),
            "max_connections=200".into(),
        ] {
            command.args(["-c", &setting]);
        }
        Ok(())
    }

    fn is_ready(&self, sandbox: &Sandbox) -> bool {
        ask(sandbox, "SELECT 1").is_ok()
    }

    /// Shared memory, whose number stands in its file of state.
    fn clean_up(&self, sandbox: &Sandbox) {
        let state = fs::read_to_string(sandbox.folder.join("data/postmaster.pid")).unwrap_or_default();
        if let Some(number) = state.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", number]).output();
        }
    }

    fn disk_bytes(&self, sandbox: &Sandbox) -> Option<io::Result<u64>> {
        let size = ask(sandbox, "SELECT pg_database_size('postgres')");
        Some(size.and_then(|size| size.trim().parse().map_err(io::Error::other)))
    }
}

fn ask(sandbox: &Sandbox, statement: &str) -> io::Result<String> {
    let mut psql = Command::new(path_of("psql")?);
    let address = format!("postgres://bench@127.0.0.1:{}/postgres?connect_timeout=10", sandbox.port);
    psql.args(["--no-psqlrc", "--no-align", "--tuples-only", "--command", statement, &address]);
    run(&mut psql).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(command: &mut Command) -> io::Result<Output> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(output),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// It refuses to be run by root, and begins in a folder that its user may enter.
fn unprivileged(command: &mut Command) -> io::Result<()> {
    command.current_dir("/");
    if let Some((id, group)) = user()? {
        command.uid(id).gid(group);
    }
    Ok(())
}

/// The user and group of `postgres` if we are root; otherwise it runs as whoever we are.
fn user() -> io::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let all = fs::read_to_string("/etc/passwd")?;
    let known = all.lines().find_map(|line| {
        let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    known.map(Some).ok_or_else(|| io::Error::other("this machine has no user postgres"))
}
