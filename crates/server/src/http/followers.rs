//! The limit of concurrent followers of events.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::{Caller, Role, Tokens};

/// Followers at the same time.
const FOLLOWERS_MAX: usize = 256;

/// Slots for followers. Each token for some topics has an equal share, all other callers share the rest, so nobody can take the
/// slots of others.
pub(super) struct Followers {
    shares: HashMap<String, Arc<Semaphore>>,
    rest: Arc<Semaphore>,
}

/// One follower's slot, released on drop.
pub(super) struct FollowerPlace {
    _place: OwnedSemaphorePermit,
}

impl Followers {
    pub(super) fn new(tokens: &Tokens) -> Self {
        let callers = tokens.iter().map(|token| &token.caller);
        let limited: Vec<_> = callers.filter(|caller| !caller.sees_all() && caller.may(Role::Read)).collect();
        let share = (FOLLOWERS_MAX / (limited.len() + 1)).max(1);
        let shares = limited.iter().map(|caller| (caller.name.clone(), Arc::new(Semaphore::new(share))));
        let rest = FOLLOWERS_MAX.saturating_sub(share * limited.len()).max(1);
        Self { shares: shares.collect(), rest: Arc::new(Semaphore::new(rest)) }
    }

    /// A slot, if one is free for this caller.
    pub(super) fn enter(&self, caller: &Caller) -> Option<FollowerPlace> {
        let places = self.shares.get(&caller.name).unwrap_or(&self.rest);
        Some(FollowerPlace { _place: Arc::clone(places).try_acquire_owned().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Token;

    #[test]
    fn no_token_takes_the_places_of_the_others_whoever_comes_first() {
        let token = |name: &str, topics: &[&str]| Token::new(name, name, &[Role::Read], topics);
        let tokens = Tokens::new(vec![token("a", &["a*"]), token("b", &["b*"]), token("all", &[])]);
        let caller = |name: &str| tokens.caller(name).unwrap();
        let names = ["a", "b", "all"];
        for first in 0..3 {
            let followers = Followers::new(&tokens);
            let mut held: HashMap<_, Vec<_>> = HashMap::new();
            for name in names.iter().cycle().skip(first).take(3) {
                held.insert(*name, std::iter::from_fn(|| followers.enter(&caller(name))).collect());
            }
            let got = names.map(|name| held[name].len());
            assert_eq!(got, [85, 85, FOLLOWERS_MAX - 2 * 85], "{} first", names[first]);
            held.remove("a");
            assert!(followers.enter(&caller("a")).is_some() && followers.enter(&caller("b")).is_none());
        }
    }
}
