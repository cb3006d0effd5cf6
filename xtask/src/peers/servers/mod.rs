//! How each server is set up: a file per program.

mod beanstalkd;
mod duly;
mod postgres;
mod rabbitmq;
mod redis;

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    process::Command,
    time::Duration,
};

pub(super) use self::{
    beanstalkd::Beanstalkd,
    duly::{Duly, Store},
    postgres::Postgres,
    rabbitmq::{Epmd, Rabbitmq},
    redis::Redis,
};
use super::sandbox::Sandbox;
use crate::servers::find;

/// One program of a system.
pub(super) trait Server: Sync {
    /// The programs that it takes, and how each is installed.
    fn programs(&self) -> &'static [(&'static str, &'static str)];

    /// Puts into its empty folder what it is to find there.
    fn prepare(&self, _place: &Sandbox) -> io::Result<()> {
        Ok(())
    }

    /// The file that it is started from.
    fn program(&self, sandbox: &Sandbox) -> io::Result<PathBuf>;

    /// Adds to `command`, which runs the program, how it starts, the first time and again after a kill.
    fn configure(&self, sandbox: &Sandbox, command: &mut Command) -> io::Result<()>;

    /// Whether it takes calls.
    fn is_ready(&self, sandbox: &Sandbox) -> bool;

    /// Removes what it leaves outside its folder when it is killed.
    fn clean_up(&self, _place: &Sandbox) {}

    /// The bytes of its data on disk, where that says what a pending message takes; otherwise its memory does.
    fn disk_bytes(&self, _place: &Sandbox) -> Option<io::Result<u64>> {
        None
    }
}

/// Where a program is that everybody may start.
fn path_of(program: &str) -> io::Result<PathBuf> {
    find(program).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, program.to_owned()))
}

/// Whether the server at this port answers `question` with something that begins with `answer`.
fn answers(port: u16, question: &[u8], answer: &[u8]) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut read = vec![0; answer.len()];
    stream.set_read_timeout(Some(Duration::from_secs(10))).is_ok()
        && stream.write_all(question).is_ok()
        && stream.read_exact(&mut read).is_ok()
        && read == answer
}
