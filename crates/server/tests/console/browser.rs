//! A browser, as far as the tests need one: WebDriver is JSON over HTTP.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use testkit::servers::chromium::Chromium;
use tokio::net::TcpStream;

/// What a person would wait for at most; real, and generous for a slow machine.
const SOON: Duration = Duration::from_secs(60);
/// Windows below this are a phone's.
const NARROW: u32 = 500;
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Asks again within the page until it is so; gives the page's text if it never is. The page's policy lets nobody make
/// code from text, so that the expression is written into it here.
const UNTIL: &str = "
    const [limit, done] = arguments, end = performance.now() + limit;
    const holds = () => (EXPRESSION);
    const poll = () => {
      let is = false;
      try { is = holds(); } catch {}
      if (is) done(null);
      else if (performance.now() > end) done(`${location.href}\\n${document.body.innerText}`);
      else setTimeout(poll, 30);
    };
    poll();";

pub(crate) struct Browser {
    driver: Chromium,
    session: String,
}

/// The window of the browser, and its language.
pub(crate) struct Window {
    pub(crate) language: &'static str,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Window {
    /// English, on a screen on somebody's desk.
    pub(crate) const WIDE: Self = Self { language: "en-GB", width: 1280, height: 900 };
}

impl Default for Window {
    fn default() -> Self {
        Self::WIDE
    }
}

impl Browser {
    /// A fresh browser at this address.
    pub(crate) async fn open(url: &str, window: Window) -> Self {
        let driver = Chromium::start();
        let profile = driver.folder().join("profile").display().to_string();
        let mut options = json!({
            "binary": driver.browser(),
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                "--disable-dev-shm-usage",
                "--no-first-run", format!("--lang={}", window.language), format!("--accept-lang={}", window.language),
                format!("--window-size={},{}", window.width, window.height), format!("--user-data-dir={profile}"),
            ],
        });
        if window.width < NARROW {
            // No window of a desktop is as narrow as a phone.
            let metrics =
                json!({"width": window.width, "height": window.height, "pixelRatio": 2, "touch": true});
            options["mobileEmulation"] = json!({"deviceMetrics": metrics});
        }
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": SOON.as_millis() as u64 * 2},
        }}});
        let mut browser = Self { driver, session: String::new() };
        let made = browser.call(Method::POST, "/session", wanted).await;
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        browser.go(url).await;
        browser
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let call = async {
            let stream = TcpStream::connect(("127.0.0.1", self.driver.port())).await.unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            let connection = tokio::spawn(connection);
            let body = if method == Method::GET { Bytes::new() } else { body.to_string().into() };
            let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
            let answer = sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap();
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            connection.abort();
            serde_json::from_slice::<Value>(&bytes).unwrap()["value"].take()
        };
        let value = tokio::time::timeout(SOON * 3, call).await.expect("the driver answers");
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, &format!("{}{path}", self.session), body).await
    }

    pub(crate) async fn go(&self, url: &str) {
        self.post("/url", json!({"url": url})).await;
    }

    /// What a script of the test gives back.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// What this expression of JavaScript, a promise, comes to.
    pub(crate) async fn ask(&self, expression: &str) -> Value {
        let script =
            format!("const done = arguments[0]; ({expression}).then(done, (error) => done(String(error)));");
        self.post("/execute/async", json!({"script": script, "args": []})).await
    }

    /// Waits until this expression of JavaScript is true in the page.
    pub(crate) async fn until(&self, expression: &str) {
        let script = UNTIL.replace("EXPRESSION", expression);
        let wish = json!({"script": script, "args": [SOON.as_millis() as u64]});
        let page = self.post("/execute/async", wish).await;
        assert!(page.is_null(), "never true: {expression}; the page: {}", page.as_str().unwrap_or_default());
    }

    /// Waits until the page shows these words.
    pub(crate) async fn see(&self, words: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(words))).await;
    }

    async fn find(&self, css: &str) -> String {
        self.until(&format!("document.querySelector({})", json!(css))).await;
        let found = self.post("/element", json!({"using": "css selector", "value": css})).await;
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    pub(crate) async fn click(&self, css: &str) {
        let id = self.find(css).await;
        self.post(&format!("/element/{id}/click"), json!({})).await;
    }

    /// Clicks what has exactly these words, among what `css` finds.
    pub(crate) async fn press(&self, css: &str, words: &str) {
        let chosen = format!(
            "[...document.querySelectorAll({})].find((one) => one.textContent.trim() === {})",
            json!(css),
            json!(words)
        );
        self.until(&chosen).await;
        self.run(&format!("({chosen}).click()")).await;
    }

    /// Writes into a field, in the place of what is there.
    pub(crate) async fn write(&self, css: &str, text: &str) {
        let id = self.find(css).await;
        self.post(&format!("/element/{id}/clear"), json!({})).await;
        self.post(&format!("/element/{id}/value"), json!({"text": text})).await;
    }

    /// One key, to whatever has the focus.
    pub(crate) async fn key(&self, key: &str) {
        let strokes = [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        self.post("/actions", json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]})).await;
    }

    /// Fails if the page complained, or called any other server than `own`.
    pub(crate) async fn was_quiet(&self, own: &str) {
        let said = self.post("/se/log", json!({"type": "browser"})).await;
        let loud: Vec<_> = said
            .as_array()
            .unwrap()
            .iter()
            .filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG")
            .collect();
        assert!(loud.is_empty(), "the browser's console: {loud:?}");
        let log = self.post("/se/log", json!({"type": "performance"})).await;
        let mut asked = BTreeSet::new();
        for line in log.as_array().unwrap() {
            let event: Value = serde_json::from_str(line["message"].as_str().unwrap()).unwrap();
            if event["message"]["method"] == "Network.requestWillBeSent" {
                asked.insert(event["message"]["params"]["request"]["url"].as_str().unwrap().to_owned());
            }
        }
        // The browser's own pages and pictures inside a sheet are no requests.
        asked.retain(|url| !url.starts_with(own) && !url.starts_with("chrome") && !url.starts_with("data:"));
        assert!(asked.is_empty(), "asked elsewhere: {asked:?}");
    }
}
