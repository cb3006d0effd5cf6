use std::{fs, io, path::PathBuf, process::Command};

use super::{Sandbox, Server, answers, path_of};

/// The script that changes no user: the one on the path does.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const INSTALL: &str = "apt-get install rabbitmq-server";

/// Where nodes of Erlang find each other. Without one of our own RabbitMQ would start one that outlives us.
pub(in crate::peers) struct Epmd;

impl Server for Epmd {
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        &[("epmd", INSTALL)]
    }

    fn program(&self, _place: &Sandbox) -> io::Result<PathBuf> {
        path_of("epmd")
    }

    fn configure(&self, sandbox: &Sandbox, command: &mut Command) -> io::Result<()> {
        command.args(["-port", &sandbox.port.to_string(), "-address", "127.0.0.1"]);
        Ok(())
    }

    fn is_ready(&self, sandbox: &Sandbox) -> bool {
        // A request for the list of names is two bytes of length and its letter; the answer begins with the port.
        answers(sandbox.port, b"\x00\x01n", &u32::from(sandbox.port).to_be_bytes())
    }
}

/// With default settings.
pub(in crate::peers) struct Rabbitmq;

impl Server for Rabbitmq {
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        &[("rabbitmq-server", INSTALL)]
    }

    fn prepare(&self, sandbox: &Sandbox) -> io::Result<()> {
        let write = |name: &str, text: String| fs::write(sandbox.folder.join(name), text);
        write(
            "rabbitmq.conf",
            format!("listeners.tcp.1 = 127.0.0.1:{}\nlog.console = false\n", sandbox.port),
        )?;
        write("plugins", "[].".into())
    }

    fn program(&self, _place: &Sandbox) -> io::Result<PathBuf> {
        Ok(SCRIPT.into())
    }

    fn configure(&self, sandbox: &Sandbox, command: &mut Command) -> io::Result<()> {
        let folder = sandbox.folder.display();
        let settings = [
            ("HOME", folder.to_string()),
            // Whoever has a socket for notices is believed to be watched, and the script to be needed no more.
            ("NOTIFY_SOCKET", format!("{folder}/nobody")),
            ("RABBITMQ_NODENAME", format!("t{}@localhost", sandbox.port)),
            ("RABBITMQ_DIST_PORT", sandbox.second_port.to_string()),
            ("RABBITMQ_MNESIA_BASE", format!("{folder}/data")),
            ("RABBITMQ_LOG_BASE", format!("{folder}/logs")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", format!("{folder}/plugins")),
            ("RABBITMQ_CONFIG_FILE", format!("{folder}/rabbitmq")),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
            ("ERL_EPMD_PORT", sandbox.behind.to_string()),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}".into()),
        ];
        command.envs(settings);
        Ok(())
    }

    fn is_ready(&self, sandbox: &Sandbox) -> bool {
        // Its first frame after the header of the protocol is a call.
        answers(sandbox.port, b"AMQP\x00\x00\x09\x01", b"\x01")
    }
}
