//! What the charts and lists of the console say.

use duly::Message;
use serde_json::{Value, json};

use crate::{bed::Bed, browser::Window};

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_failed_shows_no_rows_of_the_one_before() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    bed.duly().send(Message::to("later").id("old-row").after(duly::hours(1))).await.unwrap();
    let browser = &bed.browser;
    bed.screen("#/messages?topic=later").await;
    browser.see("old-row").await;
    // There is no such state: the server refuses to list it.
    browser.run("location.hash = '#/messages?state=sleeping'").await;
    browser.until("document.querySelector('main .note.bad')").await;
    browser.until("!document.querySelector('main [role=progressbar]')").await;
    let rows = "return document.querySelectorAll('main tbody tr').length";
    assert_eq!(browser.run(rows).await, json!(0), "rows beside an error pass for the answer");
    let page = browser.run("return document.querySelector('main').innerText").await;
    assert!(!page.as_str().unwrap().contains("old-row"), "{page}");
    browser.run("location.hash = '#/messages?topic=later'").await;
    browser.see("old-row").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_a_month_shows_dates() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    let browser = &bed.browser;
    browser.press(".seg button", "Month").await;
    // 18 Nov 12:00, and each of them another.
    let date = r"\d{1,2} [A-Z][a-z]{2,3} \d\d:\d\d";
    let labels = "[...document.querySelectorAll('.bar-axis span')].map((one) => one.textContent)";
    browser.until(&format!("{labels}.length && {labels}.every((one) => /^{date}$/.test(one))")).await;
    let seen = browser.run(&format!("return new Set({labels}).size")).await;
    assert_eq!(seen, browser.run(&format!("return {labels}.length")).await, "each label is another time");
    let range =
        format!("document.querySelector('#comes-due + p').textContent.match(/{date}/g)?.length === 2");
    browser.until(&range).await;
    bed.was_quiet().await;
}

/// Keeps the texts that are drawn on each canvas, those of the last drawing only.
const RECORD: &str = "
    const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.clearRect = function (...all) {
      this.canvas.texts = [];
      return clearRect.apply(this, all);
    };
    CanvasRenderingContext2D.prototype.fillText = function (text, ...all) {
      (this.canvas.texts ??= []).push(text);
      return fillText.call(this, text, ...all);
    };";

#[tokio::test(flavor = "multi_thread")]
async fn the_axis_of_an_empty_backlog_has_whole_and_distinct_labels() {
    let Some(bed) = Bed::new(Window::default()).await else { return };
    let browser = &bed.browser;
    browser.until("document.querySelector('[aria-label=Backlog] canvas')").await;
    browser.run(RECORD).await;
    // Times have colons; what is left are the counts.
    let labels = "(document.querySelector('[aria-label=Backlog] canvas').texts ?? []).filter((one) => !one.includes(':'))";
    browser.until(&format!("{labels}.length")).await;
    let Value::Array(labels) = browser.run(&format!("return {labels}")).await else { panic!("no labels") };
    let counts: Vec<u64> = labels.iter().map(|one| one.as_str().unwrap().parse().unwrap()).collect();
    assert!(counts.len() >= 2 && counts.contains(&0), "{counts:?}");
    let mut distinct = counts.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), counts.len(), "{counts:?}");
    bed.was_quiet().await;
}
