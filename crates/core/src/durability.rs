//! What an accepted message survives.

use std::fmt;

/// What an accepted message survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: it is lost with the process.
    Memory,
    /// A crash of the process and a power cut: synced to the local disk.
    Disk,
    /// A crash of the process; a crash of the server as far as that one is durable.
    Server,
    /// A crash of the process and of the database: committed there.
    Database,
}

impl Durability {
    /// Whether the store is on a server, so that every request costs a round trip.
    pub fn is_remote(self) -> bool {
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
