//! What `--from` and `--to` name: a configuration file, a data folder, or the address of a store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use duly::{SystemClock, days};
use duly_stores::StoreConfig;

use super::{
    end::End,
    presence::{LEASE, NAME},
};
use crate::Failure;
use duly_server::{
    config::{Config, Flags, Sources, widest_limits},
    store,
};

/// The prefix of environment variables of a configuration.
const USUAL: &str = "DULY__";
/// Retention during a move, the longest that a server can be set to: a move forgets no finished message of either store. How long servers keep
/// them is not known from an address, and they show what became of a message if the move is cut short.
const KEPT_DAYS: u64 = 3_653;
const KEPT_MAX: usize = 100_000_000;

/// Whether a location is the source or the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    From,
    To,
}

impl Role {
    fn flag(self) -> &'static str {
        match self {
            Self::From => "--from",
            Self::To => "--to",
        }
    }

    /// `DULY_FROM__STORE__REDIS_FILE` is for the source what `DULY__STORE__REDIS_FILE` is for a server.
    fn prefix(self) -> &'static str {
        match self {
            Self::From => "DULY_FROM__",
            Self::To => "DULY_TO__",
        }
    }
}

/// A store that was named and not opened yet.
#[derive(Debug)]
pub(super) struct Location {
    role: Role,
    config: Config,
}

impl Location {
    /// Reads what was typed. Opens nothing.
    pub(super) fn read(role: Role, text: &str, environment: Vec<(String, String)>) -> Result<Self, Failure> {
        let mut environment: Vec<_> = environment
            .into_iter()
            .filter_map(|(name, value)| {
                Some((format!("{USUAL}{}", name.strip_prefix(role.prefix())?), value))
            })
            .collect();
        let (mut file, mut flags) = (None, Flags::default());
        match LocationKind::of(text) {
            LocationKind::File(path) => file = Some(path),
            LocationKind::Folder(path) => flags.data = Some(path),
            LocationKind::Address(kind) => {
                environment.push((format!("{USUAL}STORE__KIND"), kind.to_owned()));
                environment.push((format!("{USUAL}STORE__{}", kind.to_ascii_uppercase()), text.to_owned()));
            }
            LocationKind::Nothing(why) => return Err(Failure::usage(format!("{}: {why}", role.flag()))),
        }
        let config = Config::load(&Sources { file, environment, flags }).map_err(|problems| {
            let words = problems.to_string().replace(USUAL, role.prefix());
            Failure::failed(format!("{}: {words}", role.flag()))
        })?;
        Ok(Self { role, config })
    }

    pub(super) fn shown(&self) -> String {
        self.config.store.config.to_string()
    }

    /// Whether both are one folder. Of other stores that is seen once they are open.
    pub(super) fn is_one_with(&self, other: &Self) -> bool {
        let folder = |location: &Self| location.config.data()?.canonicalize().ok();
        folder(self).is_some_and(|one| folder(other) == Some(one))
    }

    /// The source store must exist: none is created.
    pub(super) async fn check_is_there(&self) -> Result<(), Failure> {
        match store::is_there(&self.config).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let words = format!("{}: there is no store of Duly's in {}", self.role.flag(), self.shown());
                Err(Failure::not_found(words))
            }
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Opens it, as a node that serves nothing, whose name begins with `own`.
    pub(super) async fn open(&mut self, own: &str) -> Result<End, Failure> {
        let clock =
            SystemClock::new().map_err(|e| Failure::failed(format!("cannot start the clock: {e}")))?;
        self.config.node = format!("{own}{}", self.role.flag().trim_start_matches('-'));
        // A store takes in rows that others write into its tables, and makes dead letters of those beyond its limits.
        self.config.limits = widest_limits(&self.config.limits);
        let setup = &mut self.config.store;
        setup.lease = LEASE;
        setup.retention = days(KEPT_DAYS);
        setup.retention_max = KEPT_MAX;
        let shown = self.shown();
        let opened =
            store::open(&self.config, Arc::new(clock)).await.map_err(|error| self.failure(&error))?;
        Ok(End { store: opened.store, clock: opened.clock, shown })
    }

    fn failure(&self, error: &store::OpenError) -> Failure {
        let words = &error.words;
        if error.is_away {
            return Failure::unreachable(format!("{}: {words}", self.role.flag()));
        }
        let (flag, prefix) = (self.role.flag(), self.role.prefix());
        let hint = match self.config.data() {
            Some(_) if words.contains("open in another process") => {
                "; a folder has one process at a time, so the server that has it must be stopped for the move"
                    .to_owned()
            }
            _ if ["set shards to", "setting allow_volatile"].iter().any(|advice| words.contains(advice)) => {
                format!(
                    "; {flag} takes a configuration file that says so, and the environment a {prefix}STORE__… of that name"
                )
            }
            _ => String::new(),
        };
        Failure::failed(format!("{flag}: {words}{hint}"))
    }
}

/// How `--from` or `--to` was read.
#[derive(Debug, PartialEq, Eq)]
enum LocationKind {
    File(PathBuf),
    Folder(PathBuf),
    /// The kind of store that has such addresses.
    Address(&'static str),
    Nothing(String),
}

impl LocationKind {
    fn of(text: &str) -> Self {
        if let Some((scheme, _)) = text.split_once("://") {
            return match StoreConfig::kind_of_scheme(scheme) {
                Some(kind) => Self::Address(kind),
                None => Self::Nothing(format!(
                    "no store has addresses that begin with {scheme}://; for redis+mysql, name a configuration file"
                )),
            };
        }
        let path = Path::new(text);
        match text {
            "" => Self::Nothing("it needs a configuration file, a data folder, or an address".into()),
            _ if path.is_file() || path.extension().is_some_and(|end| end == "toml") => {
                Self::File(path.into())
            }
            _ => Self::Folder(path.into()),
        }
    }
}

/// The prefix of the node names of one move. No other move has it.
pub(super) fn own_name() -> Result<String, Failure> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::failed(format!("the system gave no random bytes: {error}")))?;
    Ok(format!("{NAME}{:016x}-", u64::from_be_bytes(random)))
}

/// Whether the environment holds settings of a server that are not looked at here.
pub(super) fn has_usual_settings(environment: &[(String, String)]) -> bool {
    environment.iter().any(|(name, _)| name.starts_with(USUAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, environment: &[(&str, &str)]) -> Result<Config, Failure> {
        let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Location::read(Role::From, text, environment.collect()).map(|location| location.config)
    }

    #[test]
    fn a_place_is_a_file_a_folder_or_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let (file, data) = (folder.path().join("shop"), folder.path().join("data"));
        std::fs::write(&file, "data = \"elsewhere\"").unwrap();
        assert_eq!(read(file.to_str().unwrap(), &[]).unwrap().data(), Some(Path::new("elsewhere")));
        assert_eq!(
            read(data.to_str().unwrap(), &[]).unwrap().data(),
            Some(data.as_path()),
            "it need not be there yet"
        );
        let config = read("redis://user:planted@host:7000/2", &[]).unwrap();
        let StoreConfig::Redis(setup) = config.store.config else { panic!("{:?}", config.store) };
        assert_eq!(setup.shown(), "redis://user:***@host:7000/2");
        assert!(read("missing.toml", &[]).unwrap_err().words.contains("missing.toml"));
        assert_eq!(read("http://host", &[]).unwrap_err().code(), 2);
        assert_eq!(read("", &[]).unwrap_err().code(), 2);
    }

    #[test]
    fn each_end_has_an_environment_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "redis://:planted@host\n").unwrap();
        let environment = [
            ("DULY_FROM__STORE__KIND", "redis"),
            ("DULY_FROM__STORE__REDIS_FILE", secret.to_str().unwrap()),
            ("DULY_FROM__STORE__SHARDS", "32"),
            ("DULY_TO__STORE__SHARDS", "0"),
            ("DULY__STORE__SHARDS", "0"),
        ];
        let config = read("./data", &environment).unwrap();
        let StoreConfig::Redis(setup) = config.store.config else { panic!("{:?}", config.store) };
        assert_eq!((setup.url.reveal(), setup.shards), ("redis://:planted@host", 32));
        let words = read("./data", &[("DULY_FROM__STORE__SHARDS", "none")]).unwrap_err().words;
        assert!(words.contains("DULY_FROM__STORE__SHARDS") && words.starts_with("--from: "), "{words}");
    }

    #[test]
    fn an_address_that_is_wrong_is_told_without_its_secret() {
        for url in ["redis://:planted@", "redis-cluster://:planted@a/7", "mysql://root:planted@host/duly"] {
            let words = read(url, &[]).map(|_| ()).err().map(|failure| failure.words).unwrap_or_default();
            assert!(!words.contains("planted"), "{words}");
        }
    }
}
