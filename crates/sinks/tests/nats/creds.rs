//! A login by a `.creds` file, to a server that trusts an operator's key and knows no passwords.

use std::fs;

use async_nats::jetstream::{self, stream::Config};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use duly_core::SinkErrorKind;
use nkeys::KeyPair;
use serde_json::{Value, json};
use testkit::servers::nats::{Nats, installed};

use crate::{failure, one, sink_with};

/// What `by` says of `of`, signed, as NATS writes it.
fn signed(by: &KeyPair, of: &KeyPair, claims: Value) -> String {
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(json!({ "typ": "JWT", "alg": "ed25519-nkey" }));
    let name = of.public_key();
    let body = part(
        json!({ "jti": name, "iat": 1, "iss": by.public_key(), "name": name, "sub": name, "nats": claims }),
    );
    let signature = by.sign(format!("{head}.{body}").as_bytes()).unwrap();
    format!("{head}.{body}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

/// What stands in the file of a user of this account.
fn creds(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let claims = json!({ "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2 });
    format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        signed(account, &user, claims),
        user.seed().unwrap()
    )
}

#[tokio::test]
async fn a_user_of_a_creds_file_is_let_in_and_a_stranger_is_not() {
    if !installed() {
        return;
    }
    let (operator, system, account) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let free = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1
    });
    let mut stored = free.clone();
    for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
        stored[limit] = json!(-1);
    }
    let of = |limits: &Value| json!({ "limits": limits, "type": "account", "version": 2 });
    let nats = Nats::with(&format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}",
        signed(&operator, &operator, json!({ "type": "operator", "version": 2 })),
        system.public_key(),
        system.public_key(),
        signed(&operator, &system, of(&free)),
        account.public_key(),
        signed(&operator, &account, of(&stored)),
    ));
    let text = creds(&account);
    let client =
        async_nats::ConnectOptions::with_credentials(&text).unwrap().connect(nats.url()).await.unwrap();
    let stream = Config { name: "ORDERS".into(), subjects: vec!["orders".into()], ..Config::default() };
    let mut stream = jetstream::new(client).create_stream(stream).await.unwrap();

    let sink = |name: &str, text: &str, mode: &str| {
        let file = nats.folder().join(name);
        fs::write(&file, text).unwrap();
        sink_with(&nats.url(), &format!("mode = '{mode}'\ncreds_file = '{}'", file.display()))
    };
    for mode in ["jetstream", "core"] {
        let known = sink("known.creds", &text, mode);
        known.probe().await.unwrap();
        one(&known, "orders", "a").await.unwrap();
        // The stream hears what comes by core NATS too, and knows the id again.
        assert_eq!(stream.info().await.unwrap().state.messages, 1, "{mode}");

        let stranger = sink("stranger.creds", &creds(&KeyPair::new_account()), mode);
        assert_eq!(failure(&stranger, "orders", "b").await, SinkErrorKind::Misconfigured);
        assert_eq!(stranger.probe().await.unwrap_err().kind, SinkErrorKind::Misconfigured);
    }
}
