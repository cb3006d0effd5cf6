//! `[[auth.tokens]]`: who is let in, and what is refused.

use duly_server::{
    auth::{Role, TokenHash},
    config::Config,
};

use crate::{
    Folder,
    load::{faults, load},
};

const TOKEN: &str = "duly_0123456789abcdef";

#[test]
fn a_token_is_given_as_its_hash_as_itself_or_as_a_file() {
    let folder = Folder::new();
    let file = folder.write("token", &format!("{TOKEN}-file\n"));
    let text = format!(
        "listen = \"0.0.0.0:7380\"\n\
         [[auth.tokens]]\nname = \"a\"\nroles = [\"produce\", \"read\"]\ntopics = [\"order*\"]\nids = [\"s-*\"]\nhash = \"{}\"\n\
         [[auth.tokens]]\nname = \"b\"\nroles = \"admin\"\ntoken = \"{TOKEN}-b\"\n\
         [[auth.tokens]]\nname = \"c\"\nroles = [\"operate\"]\ntoken_file = {file:?}\n",
        TokenHash::of(TOKEN)
    );
    let tokens =
        Config::load(&folder.sources(&text, &[])).unwrap_or_else(|problems| panic!("{problems}")).tokens;
    let a = tokens.caller(TOKEN).unwrap();
    assert_eq!((a.name.as_str(), a.may(Role::Read), a.may(Role::Operate)), ("a", true, false));
    assert!(a.may_touch("order.paid") && !a.may_touch("mail"));
    assert!(a.may_choose("s-1") && !a.may_choose("order-1"));
    assert!(tokens.caller(&format!("{TOKEN}-b")).unwrap().may(Role::Operate));
    assert_eq!(tokens.caller(&format!("{TOKEN}-file")).unwrap().name, "c");
}

#[test]
fn tokens_can_come_from_the_environment() {
    let list = format!("[{{ name = \"a\", roles = [\"read\"], token = \"{TOKEN}\" }}]");
    let folder = Folder::new();
    let file = folder.write("tokens", &list);
    for variable in
        [("DULY__AUTH__TOKENS", list.as_str()), ("DULY__AUTH__TOKENS_FILE", file.to_str().unwrap())]
    {
        let config = load("", &[variable, ("DULY__LISTEN", "0.0.0.0:1")])
            .unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(config.tokens.caller(TOKEN).unwrap().name, "a");
    }
}

#[test]
fn what_is_wrong_with_tokens_is_all_told() {
    let text = format!(
        "listen = \"0.0.0.0:7380\"\n\
         [[auth.tokens]]\nroles = [\"read\"]\ntoken = \"{TOKEN}-1\"\n\
         [[auth.tokens]]\nname = \"a\"\ntoken = \"{TOKEN}-2\"\n\
         [[auth.tokens]]\nname = \"b\"\nroles = [\"raed\"]\ntoken = \"{TOKEN}-3\"\n\
         [[auth.tokens]]\nname = \"c\"\nroles = [\"read\"]\n\
         [[auth.tokens]]\nname = \"d\"\nroles = [\"read\"]\ntoken = \"short\"\n\
         [[auth.tokens]]\nname = \"e\"\nroles = [\"read\"]\ntoken = \"{TOKEN}-4\"\nhash = \"{hash}\"\n\
         [[auth.tokens]]\nname = \"f\"\nroles = [\"read\"]\ntopics = []\ntoken = \"{TOKEN}-5\"\n\
         [[auth.tokens]]\nname = \"g\"\nroles = [\"read\"]\ntoken_file = \"no-such-file\"\n\
         [[auth.tokens]]\nname = \"h\"\nroles = [\"read\"]\ntoken = \"{TOKEN}\"\n\
         [[auth.tokens]]\nname = \"h\"\nroles = [\"read\"]\ntoken = \"{TOKEN}-6\"\n\
         [[auth.tokens]]\nname = \"i\"\nroles = [\"read\"]\nhash = \"{hash}\"\n\
         [[auth.tokens]]\nname = \"k\"\nroles = [\"produce\"]\ntopics = [\"订单*\", \"shop/*\"]\ntoken = \"{TOKEN}-7\"\n",
        hash = TokenHash::of(TOKEN)
    );
    let reported = faults(&text, &[]);
    for (path, words) in [
        ("auth.tokens[0].name", "missing"),
        ("auth.tokens[1].roles", "produce, consume, read, operate, admin"),
        ("auth.tokens[2].roles", "did you mean read?"),
        ("auth.tokens[3].hash", "duly token"),
        ("auth.tokens[4].token", "at least 16"),
        ("auth.tokens[5].hash", "hash and token are given"),
        ("auth.tokens[6].topics", "[\"*\"]"),
        ("auth.tokens[7].token_file", "cannot be read"),
        ("auth.tokens[9].name", "another token has this name"),
        ("auth.tokens[10]", "the same token"),
        ("auth.tokens[11].ids", "none can match"),
    ] {
        assert!(
            reported.iter().any(|(at, detail)| at == path && detail.contains(words)),
            "{path}: {reported:#?}"
        );
    }
    assert_eq!(reported.len(), 11, "nobody is told besides that there is no token: {reported:#?}");
}
