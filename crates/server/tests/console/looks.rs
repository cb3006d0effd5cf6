//! Languages, themes, roles, hostile bodies, a path of its own.

use duly::Message;
use duly_server::auth::{Role, Token, Tokens};
use serde_json::json;

use crate::{bed::Bed, browser::Window, proxy};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_full_of_markup_is_shown_as_text() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    let evil = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";
    let message =
        Message::to("later").id("evil").text(evil).tag("<b>tag</b>").property("x-note", "<i>note</i>");
    bed.duly().send(message.after(duly::hours(1))).await.unwrap();
    let browser = &bed.browser;
    bed.screen("#/messages/evil").await;
    browser.see("Show the body").await;
    assert!(
        !browser.run("return document.body.innerText").await.as_str().unwrap().contains("onerror"),
        "hidden until asked for"
    );
    browser.press("button", "Show the body").await;
    browser.see(evil).await;
    browser.see("<b>tag</b>").await;
    browser.see("<i>note</i>").await;
    assert_eq!(
        browser.run("return document.querySelectorAll('main img, main script, main b, main i').length").await,
        json!(0)
    );
    assert_eq!(browser.run("return document.title").await, json!("Message · Duly"));
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn language_and_theme_change_and_stay() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    let browser = &bed.browser;
    browser.see("Upcoming").await;
    browser.press(".bar button", "中文").await;
    browser.see("即将到期").await;
    let paper = "return getComputedStyle(document.documentElement).backgroundColor";
    let light = browser.run(paper).await;
    browser.click("[aria-label^='主题']").await;
    browser.click("[aria-label^='主题']").await;
    browser.until("document.documentElement.dataset.theme === 'dark'").await;
    assert_ne!(browser.run(paper).await, light);
    bed.screen("").await;
    browser.see("即将到期").await;
    browser
        .until(
            "document.documentElement.dataset.theme === 'dark' && document.documentElement.lang === 'zh-CN'",
        )
        .await;
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_lead_to_search_help_and_screens() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    let browser = &bed.browser;
    browser.see("Upcoming").await;
    browser.key("?").await;
    browser.until("document.querySelector('dialog[open]')").await;
    browser.key("\u{e00c}").await;
    browser.until("!document.querySelector('dialog')").await;
    browser.key("/").await;
    browser.until("document.activeElement.id === 'search'").await;
    browser.key("\u{e00c}").await;
    browser.key("g").await;
    browser.key("q").await;
    browser.until("location.hash === '#/queues'").await;
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_asked_for_and_a_reader_can_only_look() {
    let readers = |config: &mut duly_server::config::Config| {
        config.tokens = Tokens::new(vec![Token::new("guest", "read-me-and-no-more", &[Role::Read], &[])]);
    };
    let Some(bed) = Bed::with(Window::default(), readers).await else { return };
    bed.duly().send(Message::to("later").id("one").after(duly::hours(1))).await.unwrap();
    let browser = &bed.browser;
    browser.write("input[type=password]", "wrong").await;
    browser.press("button", "Sign in").await;
    browser.see("does not know this token").await;
    browser.write("input[type=password]", "read-me-and-no-more").await;
    browser.press("button", "Sign in").await;
    browser.see("Upcoming").await;
    browser.see("Read only").await;
    bed.screen("#/messages").await;
    browser.until("document.querySelector('tbody tr')").await;
    assert_eq!(
        browser.run("return document.querySelectorAll('tbody button, .tools').length").await,
        json!(0)
    );
    browser.press("button", "Sign out").await;
    browser.until("document.querySelector('input[type=password]') && !sessionStorage.length").await;
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_path_of_a_proxy_it_shows_and_changes_as_anywhere() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    bed.duly().send(Message::to("later").id("one").after(duly::hours(1))).await.unwrap();
    let proxy = proxy::before(bed.addr()).await;
    let browser = &bed.browser;
    browser.go(&format!("http://{proxy}{}/", proxy::PATH)).await;
    browser.see("Upcoming").await;
    browser.go(&format!("http://{proxy}{}/#/messages/one", proxy::PATH)).await;
    browser.press("main button", "Cancel").await;
    browser.until("document.querySelector('.badge.cancelled')").await;
    assert_eq!(bed.totals().await["cancelled"].as_u64(), Some(1));
    browser.was_quiet("http://127.0.0.1:").await;
}
