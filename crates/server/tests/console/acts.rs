//! Sending, cancelling, replaying, and the same for many.

use duly::Message;

use crate::{
    bed::{Bed, ONE},
    browser::Window,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_seen_coming_and_seen_delivered() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    let browser = &bed.browser;
    bed.screen("#/send").await;
    browser.write("input[list='send-topics']", "hello").await;
    browser.write(".delay", "3s").await;
    browser.see(r#""topic":"hello""#).await;
    browser.press(".seg button", "Rust").await;
    browser.see(".after(seconds(3))").await;
    browser.press("form .btn.primary", "Send").await;
    browser
        .until("location.hash.startsWith('#/messages/') && document.querySelector('.badge.pending')")
        .await;
    bed.screen("#/").await;
    browser.press(".seg button", "Minute").await;
    // On a slow machine it may be due before the page is drawn: then it stands beside the bars.
    let bar =
        "[...document.querySelectorAll('.bar-slot')].some((bar) => bar.ariaLabel.startsWith('1 message,'))";
    browser.until(&format!("{bar} || document.querySelector('.due-now')")).await;
    let received = bed.duly().receive("hello", ONE).await.unwrap();
    let id = received[0].message.id.to_string();
    bed.duly().ack(&[&received[0].receipt]).await.unwrap();
    bed.screen(&format!("#/messages/{id}")).await;
    browser.until("document.querySelector('.badge.delivered')").await;
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_cancelled_and_undone() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    let long = r#"{"n":12345678901234567890,"a":[1.10]}"#;
    let browser = &bed.browser;
    for (id, kind, text) in
        [("one", duly::ContentKind::Json, long), ("two", duly::ContentKind::Bytes, "text")]
    {
        let body = duly::Body::from_parts(kind, text);
        let message = Message::to("later").id(id).body(body).after(duly::hours(1)).priority(7);
        bed.duly().send(message).await.unwrap();
        bed.screen(&format!("#/messages/{id}")).await;
        browser.press("main button", "Cancel").await;
        browser.until("document.querySelector('.badge.cancelled')").await;
        browser.press(".toast button", "Undo").await;
        browser.until("document.querySelector('.badge.pending')").await;
        let again = bed.duly().get(id).await.unwrap().unwrap().message;
        let seen = (again.body.kind(), again.body.as_bytes(), again.priority.get());
        assert_eq!(seen, (kind, text.as_bytes(), 7));
    }
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_are_cancelled_only_when_their_number_is_typed() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    for n in 0..500 {
        bed.duly().send(Message::to("many").id(format!("m-{n}")).after(duly::hours(1))).await.unwrap();
    }
    bed.duly().send(Message::to("other").id("stays").after(duly::hours(1))).await.unwrap();
    let browser = &bed.browser;
    bed.screen("#/messages?topic=many").await;
    browser.press("nav.pager button", "Next →").await;
    browser.see("Page 2").await;
    browser.press(".tools button", "Cancel…").await;
    browser.see("500 messages match.").await;
    browser.write("dialog input", "cancel 50").await;
    browser.until("document.querySelector('dialog .danger').disabled").await;
    browser.write("dialog input", "cancel 500").await;
    browser.click("dialog .danger").await;
    browser.see("500 cancelled.").await;
    assert_eq!(
        (bed.totals().await["cancelled"].as_u64(), bed.totals().await["pending"].as_u64()),
        (Some(500), Some(1))
    );
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_the_count_is_not_cancelled_with_what_was_counted() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    for n in 0..20 {
        bed.duly().send(Message::to("many").id(format!("m-{n}")).after(duly::hours(2))).await.unwrap();
    }
    let browser = &bed.browser;
    bed.screen("#/messages?topic=many").await;
    browser.press(".tools button", "Cancel…").await;
    browser.see("20 messages match.").await;
    // Due before them all, so that a bound by number alone would take it.
    bed.duly().send(Message::to("many").id("came-later").after(duly::hours(1))).await.unwrap();
    browser.write("dialog input", "cancel 20").await;
    browser.click("dialog .danger").await;
    browser.see("20 cancelled.").await;
    let later = bed.duly().get("came-later").await.unwrap().unwrap();
    assert_eq!(later.state, duly::State::Pending);
    assert_eq!(bed.totals().await["cancelled"].as_u64(), Some(20));
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_grouped_by_what_their_receivers_said() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    for (id, error) in [("a", "no such order"), ("b", "no such order"), ("c", "the card was refused")] {
        bed.duly().send(Message::to("work").id(id)).await.unwrap();
        let received = bed.duly().receive("work", ONE).await.unwrap();
        let mut nack = duly::Nack::default();
        nack.error = Some(error.into());
        nack.dead = true;
        bed.duly().nack(&[&received[0].receipt], nack).await.unwrap();
    }
    let browser = &bed.browser;
    bed.screen("#/dead").await;
    browser.until("document.querySelectorAll('.cause').length === 2").await;
    let groups = "return [...document.querySelectorAll('.cause')].map((one) => \
                  [one.querySelector('.cause-count').textContent, one.querySelector('.life-detail').textContent])";
    assert_eq!(
        browser.run(groups).await,
        serde_json::json!([["2", "no such order"], ["1", "the card was refused"]])
    );
    bed.was_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    let tries = duly::RetryOverride { attempts: Some(1), ..duly::RetryOverride::default() };
    bed.duly().send(Message::to("work").id("poison").retry(tries)).await.unwrap();
    let received = bed.duly().receive("work", ONE).await.unwrap();
    bed.duly().nack(&[&received[0].receipt], None).await.unwrap();
    let browser = &bed.browser;
    bed.screen("#/dead").await;
    browser.see("Attempts exhausted").await;
    browser.press(".cause .btn.primary", "Replay…").await;
    browser.see("1 message matches.").await;
    browser.write("dialog input", "replay 1").await;
    browser.click("dialog .primary").await;
    browser.see("1 message is pending again.").await;
    assert_eq!(bed.totals().await["dead"].as_u64(), Some(0));
    bed.was_quiet().await;
}
