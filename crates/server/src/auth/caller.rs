//! Who calls.

use duly::matches_pattern;

use super::Role;

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
        self.topics.is_empty() || self.topics.iter().any(|pattern| pattern == "*")
    }

    /// Whether it may touch this topic.
    pub fn may_touch(&self, topic: &str) -> bool {
        self.sees_all() || self.topics.iter().any(|own| matches_pattern(own, topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(roles: &[Role], topics: &[&str]) -> Caller {
        let topics = topics.iter().map(|&topic| topic.to_owned()).collect();
        Caller { name: "shop".into(), roles: roles.to_vec(), topics }
    }

    #[test]
    fn a_role_allows_itself_and_admin_allows_all() {
        for own in Role::ALL {
            for wanted in Role::ALL {
                let may = caller(&[own], &[]).may(wanted);
                assert_eq!(may, own == wanted || own == Role::Admin, "{own} may {wanted}");
            }
        }
        let two = caller(&[Role::Produce, Role::Read], &[]);
        assert!(two.may(Role::Produce) && two.may(Role::Read) && !two.may(Role::Operate));
        assert!(!caller(&[], &[]).may(Role::Read));
    }

    #[test]
    fn a_caller_touches_only_the_topics_of_its_patterns() {
        let orders = caller(&[Role::Admin], &["order*", "mail"]);
        for (topic, may) in
            [("order", true), ("order.paid", true), ("mail", true), ("mails", false), ("", false)]
        {
            assert_eq!(orders.may_touch(topic), may, "{topic}");
        }
        assert!(!orders.sees_all());
        assert!(caller(&[Role::Read], &[]).may_touch("mails"));
        assert!(caller(&[Role::Read], &["*"]).sees_all());
    }
}
