use std::{fs, io, path::PathBuf, process::Command};

use super::{Place, Server, answers};

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

    fn prepare(&self, place: &Place) -> io::Result<()> {
        let behind = place.behind;
        let store = match self.0 {
            Store::Embedded => "kind = \"embedded\"".to_owned(),
            Store::Redis => format!("kind = \"redis\"\nredis = \"redis://127.0.0.1:{behind}\""),
            Store::Postgres => {
                format!("kind = \"postgres\"\npostgres = \"postgres://bench@127.0.0.1:{behind}/postgres\"")
            }
        };
        let data = place.folder.join("data");
        let text = format!(
            "listen = \"127.0.0.1:{}\"\ndata = \"{}\"\n[store]\n{store}\n",
            place.port,
            data.display()
        );
        fs::write(place.folder.join("duly.toml"), text)
    }

    fn program(&self, place: &Place) -> io::Result<PathBuf> {
        Ok(place.duly.clone())
    }

    fn configure(&self, place: &Place, command: &mut Command) -> io::Result<()> {
        command.args(["serve", "--config"]).arg(place.folder.join("duly.toml"));
        Ok(())
    }

    fn is_ready(&self, place: &Place) -> bool {
        answers(place.port, b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", b"HTTP/1.1 200")
    }
}
