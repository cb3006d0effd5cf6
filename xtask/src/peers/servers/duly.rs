use std::{fs, io, path::PathBuf, process::Command};

use super::{Sandbox, Server, answers};

/// Where the messages of a Duly wait.
pub(in crate::peers) enum Store {
    Embedded,
    Redis,
    Postgres,
}

/// With default settings, and the server before it as its store.
pub(in crate::peers) struct Duly(pub(in crate::peers) Store);

impl Server for Duly {
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn prepare(&self, sandbox: &Sandbox) -> io::Result<()> {
        let behind = sandbox.behind;
        let store = match self.0 {
            Store::Embedded => "kind = \"embedded\"".to_owned(),
            Store::Redis => format!("kind = \"redis\"\nredis = \"redis://127.0.0.1:{behind}\""),
            Store::Postgres => {
                format!("kind = \"postgres\"\npostgres = \"postgres://bench@127.0.0.1:{behind}/postgres\"")
            }
        };
        let data = sandbox.folder.join("data");
        let text = format!(
            "listen = \"127.0.0.1:{}\"\ndata = \"{}\"\n[store]\n{store}\n",
            sandbox.port,
            data.display()
        );
        fs::write(sandbox.folder.join("duly.toml"), text)
    }

    fn program(&self, sandbox: &Sandbox) -> io::Result<PathBuf> {
        Ok(sandbox.duly.clone())
    }

    fn configure(&self, sandbox: &Sandbox, command: &mut Command) -> io::Result<()> {
        command.args(["serve", "--config"]).arg(sandbox.folder.join("duly.toml"));
        Ok(())
    }

    fn is_ready(&self, sandbox: &Sandbox) -> bool {
        answers(sandbox.port, b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", b"HTTP/1.1 200")
    }
}
