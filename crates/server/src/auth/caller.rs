//! The caller of a request.

use duly::{MessageId, matches_pattern};

use super::Role;

/// The caller, with the rights of its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token, for the log.
    pub name: String,
    /// Its roles.
    pub roles: Vec<Role>,
    /// For which topics: patterns with `*`. Empty: all.
    pub topics: Vec<String>,
    /// Which ids it may choose: patterns with `*`. Empty: those that follow from its topics.
    pub ids: Vec<String>,
}

impl Caller {
    /// Somebody on this machine, where no token is asked for.
    pub fn anyone() -> Self {
        Self { name: "anyone".into(), roles: vec![Role::Admin], topics: Vec::new(), ids: Vec::new() }
    }

    /// Whether it may act in this role.
    pub fn may(&self, role: Role) -> bool {
        self.roles.iter().any(|own| *own == role || *own == Role::Admin)
    }

    /// Whether it sees all topics.
    pub fn sees_all(&self) -> bool {
        let is_all = |pattern: &String| pattern.bytes().all(|byte| byte == b'*');
        self.topics.is_empty() || self.topics.iter().any(is_all)
    }

    /// Whether it may touch this topic.
    pub fn may_touch(&self, topic: &str) -> bool {
        self.sees_all() || self.topics.iter().any(|own| matches_pattern(own, topic))
    }

    /// Whether it may choose this id for a message.
    ///
    /// Ids are unique over all topics. If a caller for some topics could choose any id, the answer would tell whether somebody
    /// else has a message of that id, and whoever comes first would keep the other out. So its ids follow from its topics, which
    /// no other caller has: an id matches a pattern with `*`, or begins with a topic and a colon.
    pub fn may_choose(&self, id: &str) -> bool {
        (self.ids.is_empty() && self.sees_all())
            || self.id_patterns().iter().any(|own| matches_pattern(own, id))
    }

    /// The ids that it may choose, as patterns: those of its topics that ids can match, unless it has `ids`. None: it may choose no id,
    /// unless it sees all topics.
    pub fn id_patterns(&self) -> Vec<String> {
        if !self.ids.is_empty() {
            return self.ids.clone();
        }
        let own = |topic: &String| if topic.contains('*') { topic.clone() } else { format!("{topic}:*") };
        // Topics are free text, ids are not.
        let is_fit = |pattern: &String| MessageId::parse(&pattern.replace('*', "a")).is_ok();
        self.topics.iter().map(own).filter(is_fit).collect()
    }

    /// Whether it sends messages but could not choose an id for any, because no id can match its topics.
    pub fn lacks_ids(&self) -> bool {
        self.may(Role::Produce) && !self.sees_all() && self.id_patterns().is_empty()
    }

    /// The ids that it may choose, in words.
    pub fn ids_in_words(&self) -> String {
        let patterns = self.id_patterns();
        if patterns.is_empty() {
            "nothing, as no id can match its topics".into()
        } else {
            patterns.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(roles: &[Role], topics: &[&str]) -> Caller {
        let topics = topics.iter().map(|&topic| topic.to_owned()).collect();
        Caller { name: "shop".into(), roles: roles.to_vec(), topics, ids: Vec::new() }
    }

    #[test]
    fn the_ids_of_a_caller_follow_from_its_topics() {
        let shop = caller(&[Role::Produce], &["order*", "mail"]);
        for (id, may) in [
            ("order-42", true),
            ("order", true),
            ("mail:42", true),
            ("mail", false),
            ("mail-42", false),
            ("mails:42", false),
            ("42", false),
        ] {
            assert_eq!(shop.may_choose(id), may, "{id}");
        }
        assert_eq!(shop.ids_in_words(), "order*, mail:*");
        assert!(caller(&[Role::Produce], &[]).may_choose("42"));
        let limited = Caller { ids: vec!["s-*".into()], ..shop };
        assert!(limited.may_choose("s-1") && !limited.may_choose("order-42"));
        assert_eq!(limited.ids_in_words(), "s-*");
    }

    #[test]
    fn topics_that_no_id_can_match_give_no_ids() {
        for topics in [&["订单*"][..], &["shop/*"], &["a b"]] {
            let shop = caller(&[Role::Produce], topics);
            assert!(shop.lacks_ids() && shop.ids_in_words().starts_with("nothing"), "{topics:?}");
            assert!(!caller(&[Role::Read], topics).lacks_ids(), "it sends nothing");
        }
        let one_of_two = caller(&[Role::Produce], &["shop/*", "mail"]);
        assert_eq!((one_of_two.lacks_ids(), one_of_two.ids_in_words()), (false, "mail:*".into()));
        assert!(!Caller { ids: vec!["s-*".into()], ..caller(&[Role::Produce], &["订单*"]) }.lacks_ids());
        assert!(!caller(&[Role::Produce], &[]).lacks_ids());
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
        for all in ["*", "**"] {
            assert!(caller(&[Role::Read], &["mail", all]).sees_all(), "{all}");
        }
    }
}
