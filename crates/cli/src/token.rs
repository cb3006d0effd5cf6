//! `duly token`: makes a token. It is shown once; the configuration keeps its hash.

use serde::Serialize;

use super::{Failure, Output};
use duly_server::auth::{Caller, Role, Token, TokenHash};

/// Make a token, and the lines of the configuration that let it in
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Who will hold it; the log shows this name
    #[arg(long)]
    name: String,
    /// What it allows: produce, consume, read, operate, admin; may be given several times
    #[arg(long = "role", value_name = "ROLE", required = true, value_delimiter = ',')]
    roles: Vec<Role>,
    /// For which topics, a pattern with *; may be given several times [default: all]
    #[arg(long = "topic", value_name = "PATTERN")]
    topics: Vec<String>,
    /// Which ids it may choose, a pattern with *; may be given several times [default: those that follow from its topics]
    #[arg(long = "id", value_name = "PATTERN")]
    ids: Vec<String>,
}

#[derive(Serialize)]
struct Made {
    token: String,
    hash: String,
    config: String,
}

impl Arguments {
    pub(crate) fn run(self, output: &Output) -> Result<(), Failure> {
        let Self { name, mut roles, topics, ids } = self;
        roles.sort();
        roles.dedup();
        let wrong =
            |text: &str, max| text.is_empty() || text.len() > max || text.chars().any(char::is_control);
        if wrong(&name, 64) || topics.iter().chain(&ids).any(|pattern| wrong(pattern, 255)) {
            let words = "a name has 1 to 64 bytes, a pattern 1 to 255, and neither has control characters";
            return Err(Failure::usage(words));
        }
        let caller =
            Caller { name: name.clone(), roles: roles.clone(), topics: topics.clone(), ids: ids.clone() };
        if caller.lacks_ids() {
            let words = "no id can match these topics: say with --id which ids the token may choose, such as --id 'shop-*'";
            return Err(Failure::usage(words));
        }
        let token = Token::draw().map_err(Failure::failed)?;
        let hash = TokenHash::of(&token).to_string();
        let config = lines(&name, &roles, &topics, &ids, &hash);
        output.answer(&Made { token, hash, config }, |made| format!("{}\n\n{}", made.token, made.config))?;
        if output.is_json() {
            return Ok(());
        }
        output.note(
            "\nThe first line is the token. It is shown this once and kept nowhere: give it to its holder, who sets \
             DULY_TOKEN or sends it as `Authorization: Bearer …`.\nPut the lines below it into duly.toml and start the \
             server anew.",
        );
        Ok(())
    }
}

fn lines(name: &str, roles: &[Role], topics: &[String], ids: &[String], hash: &str) -> String {
    let list = |words: Vec<String>| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ");
    let mut text = format!("[[auth.tokens]]\nname = {}\n", quoted(name));
    text.push_str(&format!("roles = [{}]\n", list(roles.iter().map(Role::to_string).collect())));
    if !topics.is_empty() {
        text.push_str(&format!("topics = [{}]\n", list(topics.to_vec())));
    }
    if !ids.is_empty() {
        text.push_str(&format!("ids = [{}]\n", list(ids.to_vec())));
    }
    text.push_str(&format!("hash = {}\n", quoted(hash)));
    text
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_toml_whatever_the_name() {
        let (name, hash) = ("a \"shop\" \\ 'x'", TokenHash::of("t").to_string());
        let text = lines(name, &[Role::Produce, Role::Read], &["order*".into()], &["s-*".into()], &hash);
        let table: toml::Table = text.parse().unwrap();
        let token = &table["auth"]["tokens"][0];
        assert_eq!(token["name"].as_str(), Some(name));
        assert_eq!(token["roles"][1].as_str(), Some("read"));
        assert_eq!(token["topics"][0].as_str(), Some("order*"));
        assert_eq!(token["ids"][0].as_str(), Some("s-*"));
        assert_eq!(token["hash"].as_str(), Some(hash.as_str()));
    }
}
