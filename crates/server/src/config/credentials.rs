//! `[[auth.tokens]]`: who may call.

use std::{collections::BTreeSet, fs};

use serde_json::Value as Json;

use super::{
    Secret, resolve::plain_name, secret::MASK, section::Section, suggest::did_you_mean, written::Node,
};
use crate::auth::{Caller, Role, Token, TokenHash, Tokens};

/// Shorter ones can be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// For a token that sends to topics that no id can match.
const IDS_MISSING: &str = "it is missing: ids have only A-Z a-z 0-9 . _ : - and so none can match the topics of this token; say which ids \
                                      it may choose, such as [\"shop-*\"]";

pub(super) fn tokens(section: &mut Section<'_>) -> Tokens {
    let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    let tokens = section.tables("tokens", |section| {
        let token = token(section)?;
        let origin = section.origin.clone();
        if !names.insert(token.caller.name.clone()) {
            section.fault("name", &origin, "another token has this name; give each its own");
        }
        if !hashes.insert(token.hash.to_string()) {
            section.fault(
                "",
                &origin,
                "this is the same token as another; give each holder one of their own",
            );
        }
        Some(token)
    });
    Tokens::new(tokens.into_iter().flatten().collect())
}

fn token(section: &mut Section<'_>) -> Option<Token> {
    let origin = section.origin.clone();
    let name = section.value(
        "name",
        None,
        |node| plain_name("token", node.text()?).map(Some),
        |name: &Option<String>| name.as_deref().map_or(Json::Null, Json::from),
    );
    if name.is_none() && !section.reading.is_faulty(&section.at("name")) {
        section.fault("name", &origin, "it is missing: a token has a name, which the log shows");
    }
    let roles = section.value("roles", Vec::new(), roles, |roles| {
        roles.iter().map(|role| role.word()).collect::<Vec<_>>().into()
    });
    if roles.is_empty() && !section.reading.is_faulty(&section.at("roles")) {
        let words = Role::ALL.map(Role::word).join(", ");
        section.fault("roles", &origin, format!("it is missing: say what the token allows: {words}"));
    }
    let topics = section.value("topics", Vec::new(), topics_or_ids, |topics| topics.clone().into());
    let ids = section.value("ids", Vec::new(), topics_or_ids, |ids| ids.clone().into());
    let hash = hash(section);
    let caller = Caller { name: name?, roles, topics, ids };
    if caller.lacks_ids() && !section.reading.is_faulty(&section.at("ids")) {
        section.fault("ids", &origin, IDS_MISSING);
    }
    Some(Token { hash: hash?, caller })
}

fn roles(node: &Node) -> Result<Vec<Role>, String> {
    let words = node.words()?;
    let read = |word: &String| {
        word.parse().map_err(|fault| format!("{fault}{}", did_you_mean(word, Role::ALL.map(Role::word))))
    };
    let roles: Vec<Role> = words.iter().map(read).collect::<Result<_, _>>()?;
    if roles.is_empty() { Err("a token without a role may do nothing".into()) } else { Ok(roles) }
}

pub(super) fn topics_or_ids(node: &Node) -> Result<Vec<String>, String> {
    let patterns = node.words()?;
    if patterns.is_empty() {
        return Err("an empty list would be all of them; write [\"*\"] or leave it out".into());
    }
    match patterns.iter().find(|pattern| pattern.is_empty() || pattern.len() > 255) {
        Some(pattern) => {
            Err(format!("{pattern:?} is not a pattern: it has 1 to 255 bytes, `*` for any text"))
        }
        None => Ok(patterns),
    }
}

/// The hash, given as such or made of the token; the token itself is kept nowhere.
fn hash(section: &mut Section<'_>) -> Option<TokenHash> {
    let origin = section.origin.clone();
    let hidden = |_: &TokenHash| Json::from(MASK);
    let given: Vec<&str> =
        ["hash", "token", "token_file"].into_iter().filter(|key| section.has(key)).collect();
    let (faults, count) = (section.reading.problems.len(), given.len());
    let hash = section.optional("hash", |node| TokenHash::parse(node.text()?), hidden);
    let token = section.optional("token", |node| plain(&secret(node)?), hidden);
    let of_file = section.optional("token_file", |node| from_file(node.text()?), hidden);
    if section.reading.problems.len() == faults && count != 1 {
        let detail = match count {
            0 => "it is missing: give the hash that `duly token` printed, or token or token_file".to_owned(),
            _ => format!("{} are given; one is enough", given.join(" and ")),
        };
        section.fault("hash", &origin, detail);
        return None;
    }
    hash.or(token).or(of_file)
}

fn secret(node: &Node) -> Result<Secret, String> {
    node.text().map(Secret::new).map_err(|_| format!("a token is text in quotes; this is {}", node.kind()))
}

fn plain(token: &Secret) -> Result<TokenHash, String> {
    let token = token.reveal();
    if token.len() < TOKEN_LEN_MIN || token.contains(char::is_whitespace) {
        return Err(format!(
            "a token has at least {TOKEN_LEN_MIN} characters and no spaces; `duly token` makes one"
        ));
    }
    Ok(TokenHash::of(token))
}

fn from_file(path: &str) -> Result<TokenHash, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("the file {path:?} cannot be read: {error}"))?;
    plain(&Secret::new(text.trim())).map_err(|fault| format!("in the file {path:?}: {fault}"))
}
