//! A relational database server as a child process: what MariaDB and PostgreSQL have in common.

use std::{fmt, path::Path, process::Command, time::Duration};

use super::{client, program::Program, wait_until};

/// A server answers within this, or the test fails. A long recovery after a kill is in it.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(60);

/// What differs between one kind of server and another. The options of a kind implement it.
pub trait Engine: Clone + Default + fmt::Debug {
    /// The product's name, for messages of failed tests.
    const NAME: &'static str;
    /// The server's program.
    const PROGRAM: &'static str;
    /// The database of statements that name none.
    const DATABASE: &'static str;

    /// A program that does not run yet, with an empty data folder.
    fn prepare() -> Program;

    /// The arguments that the server is started with.
    fn arguments(&self, program: &Program) -> Vec<String>;

    /// Whether a started server accepts connections.
    fn is_ready(program: &Program) -> bool;

    /// The address of a database.
    fn url(port: u16, database: &str) -> String;

    /// The statement that creates a database.
    fn create_database(name: &str) -> String;

    /// The command-line client, connected to this port, which may be a proxy's.
    fn client(port: u16, database: &str) -> Command;

    /// kill -9 of all its processes.
    fn kill(program: &Program) {
        program.kill();
    }

    /// SIGSTOP to all its processes.
    fn pause(program: &Program) {
        program.pause();
    }

    /// SIGCONT to all its processes.
    fn cont(program: &Program) {
        program.cont();
    }

    /// Removes what a killed server leaves outside its folder.
    fn clean_up(_folder: &Path) {}
}

/// One database server. The port and the data stay over restarts.
#[derive(Debug)]
pub struct Database<E: Engine> {
    program: Program,
    options: E,
}

impl<E: Engine> Database<E> {
    /// A server on its own, with durable settings.
    pub fn single() -> Self {
        Self::with(E::default())
    }

    /// A server with these options.
    ///
    /// # Panics
    /// If the server is not installed or does not start.
    pub fn with(options: E) -> Self {
        // Another program, which does not know our locks, may take a port that was free a moment ago.
        for _ in 0..5 {
            let server = Self { program: E::prepare(), options: options.clone() };
            if server.try_start() {
                return server;
            }
            if !server.log().contains("Address already in use") {
                panic!("{} did not start:\n{}", E::PROGRAM, server.log());
            }
        }
        panic!("{} found no free port", E::PROGRAM);
    }

    /// The address for clients that need no database of their own.
    pub fn url(&self) -> String {
        E::url(self.port(), E::DATABASE)
    }

    /// Creates an empty database and returns its address.
    ///
    /// # Panics
    /// If there is one of that name.
    pub fn database(&self, name: &str) -> String {
        self.run(&E::create_database(name));
        E::url(self.port(), name)
    }

    /// Creates an empty database with a fresh name and returns its address.
    pub fn fresh_database(&self) -> String {
        self.database(&client::fresh_name())
    }

    /// The port, which stays the same.
    pub fn port(&self) -> u16 {
        self.program.port()
    }

    /// The folder of the server's data and log.
    pub fn folder(&self) -> &Path {
        self.program.folder()
    }

    /// What the server wrote to its log, over all restarts.
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// The number of the process, while it runs. If the server has several, they are its children.
    pub fn pid(&self) -> Option<u32> {
        self.program.pid()
    }

    /// Runs statements of the test itself, in no database of the test's own; it blocks. Returns the rows of all of them,
    /// one per line, with tabs between the columns.
    ///
    /// # Panics
    /// If the server is not there or refuses a statement.
    pub fn run(&self, statements: &str) -> String {
        self.run_in(E::DATABASE, statements)
    }

    /// The same in a database, given by its name or by its URL.
    ///
    /// # Panics
    /// If the server is not there or refuses a statement.
    pub fn run_in(&self, database: &str, statements: &str) -> String {
        let answer = self.try_run_in(database, statements);
        answer.unwrap_or_else(|error| panic!("{} refused {statements}: {error}", E::NAME))
    }

    /// The same, but returns the server's error if it refuses a statement. The statements before that one are done.
    pub fn try_run_in(&self, database: &str, statements: &str) -> Result<String, String> {
        client::ask(&mut E::client(self.port(), database), statements)
    }

    /// kill -9 of all its processes.
    pub fn kill(&self) {
        E::kill(&self.program);
    }

    /// Starts it again, after a kill. It has recovered when this returns.
    pub fn start(&self) {
        assert!(self.try_start(), "{} did not start again:\n{}", E::PROGRAM, self.log());
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }

    /// SIGSTOP to all its processes: the server does nothing, and its connections stay.
    pub fn pause(&self) {
        E::pause(&self.program);
    }

    /// SIGCONT to all its processes: the server goes on.
    pub fn cont(&self) {
        E::cont(&self.program);
    }

    fn try_start(&self) -> bool {
        self.program.start(&self.options.arguments(&self.program));
        let mut alive = true;
        wait_until(&format!("{} answers", E::PROGRAM), READY_WITHIN, || {
            alive = self.program.is_alive();
            !alive || E::is_ready(&self.program)
        });
        alive
    }
}

impl<E: Engine> Drop for Database<E> {
    fn drop(&mut self) {
        self.kill();
        E::clean_up(self.folder());
    }
}

#[cfg(test)]
mod tests;
