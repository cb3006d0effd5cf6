//! The console in 中文.

use std::{collections::BTreeMap, time::Duration};

use duly::Message;
use duly_client::wire::{Alert, AlertState, AlertValues, TotalsAnswer};
use duly_server::config::{AlertRules, Thresholds};
use serde_json::{Value, json};

use crate::{
    bed::{Bed, ONE},
    browser::Window,
};

const CHINESE: Window = Window { language: "zh-CN", ..Window::WIDE };

#[tokio::test(flavor = "multi_thread")]
async fn a_page_in_chinese_tells_of_alerts_and_durability_in_chinese() {
    let all = Thresholds {
        overdue: Some(Duration::from_millis(1)),
        queue_length: Some(0),
        dead_letters: Some(0),
        ..Thresholds::default()
    };
    let rules = AlertRules { all, ..AlertRules::default() };
    let Some(bed) = Bed::with(CHINESE, |config| config.alerts = rules).await else { return };
    let mut nack = duly::Nack::default();
    nack.dead = true;
    bed.duly().send(Message::to("work")).await.unwrap();
    let received = bed.duly().receive("work", ONE).await.unwrap();
    bed.duly().nack(&[&received[0].receipt], nack).await.unwrap();
    bed.duly().send(Message::to("order")).await.unwrap();
    let browser = &bed.browser;
    browser.see("积压过多: 积压 1 条消息，上限为 0 条").await;
    browser.see("死信: 现有死信 1 条，上限为 0 条；请重新投递或清除").await;
    browser.see("逾期: queue/order：最早到期的消息已等待").await;
    browser.see("磁盘：确认之前已同步落盘").await;
    let banner = browser.run("return document.querySelector('.health').innerText").await;
    let banner = banner.as_str().unwrap();
    for english in ["message", "limit", "synced", "acknowledgement", "undefined", "{"] {
        assert!(!banner.contains(english), "{english}: {banner}");
    }
    bed.was_quiet().await;
}

/// What the page makes of an alert.
async fn detail(bed: &Bed, name: &str, values: AlertValues) -> String {
    let alert = Alert {
        name: name.into(),
        scope: None,
        state: AlertState::Raised,
        detail: "in the words of the server".into(),
        values,
        since: String::new(),
    };
    let ask = format!("import('/js/health.js').then((own) => own.alertDetail({}))", json!(alert));
    match bed.browser.ask(&ask).await {
        Value::String(text) => text,
        other => panic!("{name}: {other}"),
    }
}

/// The others cannot be had at will; they come in the shape that the server sends.
#[tokio::test(flavor = "multi_thread")]
async fn every_alert_is_told_in_chinese_from_its_numbers() {
    let Some(bed) = Bed::new(CHINESE).await else { return };
    bed.browser.see("即将到期").await;
    let none = AlertValues::default;
    let totals =
        TotalsAnswer { accepted: 1_003, pending: 2, in_flight: 1, delivered: 999, ..TotalsAnswer::default() };
    let parts = [("accepting", "disk full"), ("driver", "panicked")];
    let parts = BTreeMap::from(parts.map(|(part, why)| (part.to_owned(), why.to_owned())));
    let cases = [
        (
            "overdue",
            AlertValues {
                lane: Some("queue/a".into()),
                measured_ms: Some(12_000),
                limit_ms: Some(600_000),
                ..none()
            },
            "queue/a：最早到期的消息已等待 12 秒，上限为 10 分",
        ),
        (
            "queue_length",
            AlertValues { count: Some(12_345), limit: Some(1_000), ..none() },
            "积压 12,345 条消息，上限为 1,000 条",
        ),
        (
            "lateness_p99",
            AlertValues { measured_ms: Some(7_000), limit_ms: Some(5_000), attempts: Some(40), ..none() },
            "99% 的投递在 7.0 秒 内开始，上限为 5.0 秒；一分钟内共 40 次",
        ),
        (
            "failure_rate",
            AlertValues { failed: Some(3), attempts: Some(20), limit_rate: Some(0.1), ..none() },
            "一分钟内 20 次投递失败 3 次，上限为 10%",
        ),
        (
            "dead_letters",
            AlertValues { count: Some(6), limit: Some(5), ..none() },
            "现有死信 6 条，上限为 5 条；请重新投递或清除",
        ),
        (
            "orphan",
            AlertValues { count: Some(7), sink: Some("gone".into()), ..none() },
            "7 条消息在等待目标 gone，但它不在配置中；请重新加入配置，或取消这些消息",
        ),
        (
            "ledger",
            AlertValues { totals: Some(totals), ..none() },
            "已接受 1,003 条消息，各状态合计 1,002 条；请保留一份数据副本并报告此问题",
        ),
        (
            "not_ready",
            AlertValues { parts, ..none() },
            "当前无法接收和投递消息：接收消息：disk full；投递引擎：panicked",
        ),
        (
            "degraded",
            AlertValues { why: Some("claims fail".into()), ..none() },
            "部分消息在等待，其余照常投递：claims fail",
        ),
    ];
    for (name, values, words) in cases {
        assert_eq!(detail(&bed, name, values).await, words, "{name}");
    }
    assert_eq!(detail(&bed, "of_a_newer_server", none()).await, "in the words of the server");
    bed.was_quiet().await;
}
