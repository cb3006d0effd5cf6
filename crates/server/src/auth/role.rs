//! The five roles.

use std::{fmt, str::FromStr};

/// What a caller may do. Each route needs one of them; `admin` may do everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Send, cancel, reschedule and fire messages.
    Produce,
    /// Receive from the built-in queue, ack, nack and extend.
    Consume,
    /// Look.
    Read,
    /// Pause, resume, probe, replay, purge; the same for many.
    Operate,
    /// Everything.
    Admin,
}

impl Role {
    /// All of them, from the least to the most.
    pub const ALL: [Self; 5] = [Self::Produce, Self::Consume, Self::Read, Self::Operate, Self::Admin];

    /// The word that the configuration and the command line use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|role| role.word() == word).ok_or_else(|| {
            format!("no role is called {word:?}; the roles are {}", Self::ALL.map(Self::word).join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_roles_are_fixed() {
        assert_eq!(Role::ALL.map(Role::word), ["produce", "consume", "read", "operate", "admin"]);
        for role in Role::ALL {
            assert_eq!(role.word().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().unwrap_err().contains("produce, consume, read, operate, admin"));
    }
}
