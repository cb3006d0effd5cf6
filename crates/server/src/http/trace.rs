//! W3C trace context of a request, passed on by its messages.

use std::collections::BTreeMap;

use duly::Properties;
use http::HeaderMap;

use super::app::App;

/// Longest `tracestate` that must be passed on.
const STATE_MAX: usize = 512;

/// `traceparent` and `tracestate` of a request (W3C Trace Context): properties of the message, and so headers of the target.
#[derive(Debug, Default)]
pub(super) struct Trace {
    parent: Option<String>,
    state: Option<String>,
    properties_max: usize,
}

impl Trace {
    /// Reads the headers. A malformed one is ignored, as the standard demands.
    pub(super) fn of(headers: &HeaderMap, app: &App) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(parent) = text(Properties::TRACEPARENT).filter(|parent| is_parent(parent)) else {
            return Self::default();
        };
        let state =
            text(Properties::TRACESTATE).filter(|state| !state.is_empty() && state.len() <= STATE_MAX);
        Self {
            parent: Some(parent.into()),
            state: state.map(Into::into),
            properties_max: app.limits.properties_max,
        }
    }

    /// Adds the properties, unless the message has its own or no room for them.
    pub(super) fn join(&self, properties: &mut BTreeMap<String, String>) {
        let Some(parent) = &self.parent else { return };
        // Targets with case-insensitive headers would see two of one name.
        let has = |properties: &BTreeMap<String, String>, name: &str| {
            properties.keys().any(|own| own.eq_ignore_ascii_case(name))
        };
        if has(properties, Properties::TRACEPARENT) || properties.len() >= self.properties_max {
            return;
        }
        properties.insert(Properties::TRACEPARENT.into(), parent.clone());
        if let Some(state) = &self.state
            && properties.len() < self.properties_max
            && !has(properties, Properties::TRACESTATE)
        {
            properties.insert(Properties::TRACESTATE.into(), state.clone());
        }
    }
}

/// `00-<32 hexadecimal digits>-<16>-<2>`, version, trace, span and flags; later versions may go on after a dash. A trace or span of zeros is
/// invalid by the standard.
fn is_parent(text: &str) -> bool {
    let mut parts = text.splitn(5, '-');
    let mut is_hex = |len: usize| {
        let part = parts.next().unwrap_or_default();
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        part.len() == len && part.bytes().all(is_digit)
    };
    let is_well_formed = is_hex(2) && is_hex(32) && is_hex(16) && is_hex(2);
    let is_version = !text.starts_with("ff") && (!text.starts_with("00") || parts.next().is_none());
    let is_zero = |from: usize, len: usize| text[from..from + len].bytes().all(|digit| digit == b'0');
    is_well_formed && is_version && text.len() <= STATE_MAX && !is_zero(3, 32) && !is_zero(36, 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_what_the_standard_allows_is_carried() {
        assert!(is_parent(PARENT));
        assert!(is_parent(&PARENT.replacen("00", "cc", 1)));
        assert!(is_parent(&format!("{}-what-the-future-may-bring", PARENT.replacen("00", "01", 1))));
        for bad in [
            "",
            "00",
            "00-1-2-3",
            &PARENT.to_uppercase(),
            &format!("{PARENT}-x"),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
        ] {
            assert!(!is_parent(bad), "{bad}");
        }
    }

    #[test]
    fn the_messages_own_trace_and_its_limit_of_properties_stand() {
        let trace = Trace { parent: Some(PARENT.into()), state: Some("a=1".into()), properties_max: 2 };
        let joined = |names: &[&str]| {
            let mut properties = names.iter().map(|name| ((*name).to_owned(), "own".to_owned())).collect();
            trace.join(&mut properties);
            properties.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(joined(&[]), [format!("traceparent={PARENT}"), "tracestate=a=1".into()]);
        assert_eq!(joined(&["x"]), [format!("traceparent={PARENT}"), "x=own".into()]);
        assert_eq!(joined(&["traceparent"]), ["traceparent=own"]);
        assert_eq!(joined(&["x", "y"]), ["x=own", "y=own"]);
    }

    #[test]
    fn a_trace_of_the_messages_own_is_left_whatever_its_case() {
        let trace = Trace { parent: Some(PARENT.into()), state: Some("a=b".into()), properties_max: 64 };
        let mut own = BTreeMap::from([("Traceparent".to_owned(), "mine".to_owned())]);
        trace.join(&mut own);
        assert_eq!(own.len(), 1);
        let mut state = BTreeMap::from([("TraceState".to_owned(), "mine".to_owned())]);
        trace.join(&mut state);
        assert_eq!(state.len(), 2, "{state:?}");
    }
}
