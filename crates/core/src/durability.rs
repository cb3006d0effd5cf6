//! What an accepted message survives.

use std::fmt;

/// What an accepted message survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: it is gone with the process.
    Memory,
    /// Our crash and a power cut: synced to this machine's disk.
    Disk,
    /// Our crash; the crash of the server behind as far as that one is durable.
    Server,
    /// Our crash and the database's: committed there.
    Database,
}

impl Durability {
    /// Whether the store is a server's, behind a network, so that each question to it costs somebody else something.
    pub fn is_elsewhere(self) -> bool {
        matches!(self, Self::Server | Self::Database)
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory: lost when the process ends",
            Self::Disk => {
                "disk: synced before every acknowledgement; survives kill -9, OS crash and power cut"
            }
            Self::Server => "server: survives our crash, and the server's as far as it is durable",
            Self::Database => {
                "database: committed before every acknowledgement; survives our crash and the database's"
            }
        })
    }
}
