//! Whether everybody can use it: a checker looks at each screen, in each look.

use duly::Message;
use duly_server::auth::{Role, Token, Tokens};
use serde_json::{Value, json};
use testkit::servers::chromium;

use crate::{
    bed::{Bed, ONE},
    browser::Window,
};

const PHONE: Window = Window { width: 390, height: 844, ..Window::WIDE };

/// Each screen, and what is there once it is drawn.
const SCREENS: [(&str, &str); 9] = [
    ("#/", ".tiles"),
    ("#/messages", "tbody tr"),
    ("#/messages?state=dead", "tbody tr"),
    ("#/messages/one", ".life"),
    ("#/dead", ".cause"),
    ("#/queues", "tbody tr"),
    ("#/sinks", ".screen"),
    ("#/nodes", "tbody tr"),
    ("#/send", "form"),
];

/// What the checker calls serious or critical in the page.
async fn grave(bed: &Bed, axe: &str) -> Vec<Value> {
    let browser = &bed.browser;
    if browser.run("return typeof axe").await == json!("undefined") {
        browser.run(axe).await;
    }
    let found = browser
        .ask("axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations)")
        .await;
    let grave = |one: &&Value| matches!(one["impact"].as_str(), Some("serious" | "critical"));
    found.as_array().unwrap().iter().filter(grave).cloned().collect()
}

/// Fails if the checker finds something grave, or if the page is wider than the window.
async fn is_fine(bed: &Bed, axe: &str, what: &str) {
    let grave = grave(bed, axe).await;
    assert!(grave.is_empty(), "{what}: {}", serde_json::to_string_pretty(&grave).unwrap());
    let over = bed.browser.run("return document.documentElement.scrollWidth - window.innerWidth").await;
    assert!(over.as_i64().unwrap() <= 0, "{what} is {over} pixels too wide");
}

async fn fill(bed: &Bed) {
    let tries = duly::RetryOverride { attempts: Some(1), ..duly::RetryOverride::default() };
    bed.duly().send(Message::to("work").id("poison").retry(tries)).await.unwrap();
    let received = bed.duly().receive("work", ONE).await.unwrap();
    bed.duly().nack(&[&received[0].receipt], None).await.unwrap();
    let long = "a-topic-with-a-rather-long-name.".repeat(5);
    for (id, topic) in [("one", "later"), ("two", &long), (&"three".repeat(20), "later")] {
        let message = Message::to(topic).id(id).tag("tag").property("x-note", "note").text("{\"a\":1}");
        bed.duly().send(message.after(duly::minutes(7))).await.unwrap();
    }
}

async fn check_all(window: Window, theme: &str) {
    let (Some(axe), Some(bed)) = (chromium::axe(), Bed::new(window).await) else { return };
    fill(&bed).await;
    let browser = &bed.browser;
    browser.run(&format!("localStorage.setItem('duly.theme', '{theme}')")).await;
    for (screen, drawn) in SCREENS {
        bed.screen(screen).await;
        browser.run("location.reload()").await;
        browser.until(&format!("document.querySelector('main {drawn}')")).await;
        is_fine(&bed, &axe, &format!("{screen}, {theme}")).await;
    }
    browser.key("?").await;
    browser.until("document.querySelector('dialog[open]')").await;
    is_fine(&bed, &axe, &format!("the help, {theme}")).await;
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_is_for_everybody_in_the_light() {
    check_all(Window::default(), "light").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_is_for_everybody_in_the_dark() {
    check_all(Window::default(), "dark").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_is_for_everybody_on_a_phone() {
    check_all(PHONE, "light").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_login_is_for_everybody() {
    let readers = |config: &mut duly_server::config::Config| {
        config.tokens = Tokens::new(vec![Token::new("guest", "read-me-and-no-more", &[Role::Read], &[])]);
    };
    let (Some(axe), Some(bed)) = (chromium::axe(), Bed::with(PHONE, readers).await) else { return };
    bed.browser.until("document.querySelector('input[type=password]')").await;
    is_fine(&bed, &axe, "the login").await;
    // The checker does find what is wrong.
    bed.browser.run("document.querySelector('main, body').append(document.createElement('img'))").await;
    assert!(!grave(&bed, &axe).await.is_empty(), "a picture without words");
    bed.was_quiet().await;
}
