//! Rules of the API that types do not express: the texts, numbers and combinations that are accepted.
//!
//! They are added to the schemas made from the types, so that a client which validates by the file sends nothing that is
//! refused for its form. A fuzzer holds the two together (`crates/server/tests/http/schema.rs`).

use duly::{Key, MessageId, Properties, Receive, SinkName, State, Tag, Timestamp, Topic};
use serde_json::{Map, Value, json};

use super::{messages, queues, receipts};
use crate::wire::{DUE_MILLIS_MIN, Event};

/// More than any configuration allows: the limits of a server are its own.
const BATCH_MAX: u64 = 1_000_000;
const PROPERTIES_MAX: u64 = 1_024;

/// Adds the rules to a file that has the shapes.
pub(super) fn tighten(api: &mut Value) {
    if let Some(schemas) = api.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        flatten("Message", schemas);
        for (name, schema) in added() {
            schemas.insert(name.into(), schema);
        }
        for (schema, rules) in rules() {
            if let Some(schema) = schemas.get_mut(schema) {
                tighten_schema(schema, rules);
            }
        }
    }
    // Without a body it means the defaults.
    if let Some(receive) = api.pointer_mut("/paths/~1v1~1queues~1{topic}~1receive/post/requestBody") {
        receive["required"] = false.into();
    }
    let paths = api.get_mut("paths").and_then(Value::as_object_mut);
    for (path, operations) in paths.into_iter().flat_map(Map::iter_mut) {
        for operation in operations.as_object_mut().into_iter().flat_map(Map::values_mut) {
            if can_fail(path) {
                operation["responses"]["default"] = failure();
            }
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap_or_default().to_owned();
                if let Some(rule) = parameter_rule(path, &name) {
                    merge(&mut parameter["schema"], rule);
                }
                if (path.as_str(), name.as_str()) == ("/v1/events", "types") {
                    let types =
                        format!("Only these types, with commas between: `{}`.", Event::KINDS.join("`, `"));
                    parameter["description"] = types.into();
                }
            }
        }
    }
}

/// Whether a route answers errors as a `Problem`. `/v1/whoami` answers everybody; those outside `/v1` have answers of their own.
fn can_fail(path: &str) -> bool {
    path.starts_with("/v1/") && path != "/v1/whoami"
}

/// The answer of every status that a route does not name.
fn failure() -> Value {
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    json!({"description": "See /errors", "content": {"application/problem+json": {"schema": schema}}})
}

/// Makes one object of a schema and those whose fields it has beside its own (`#[serde(flatten)]`): that is what is sent.
fn flatten(name: &str, schemas: &mut Map<String, Value>) {
    let Some(Value::Object(whole)) = schemas.get_mut(name) else { return };
    let Some(Value::Array(mut parts)) = whole.remove("allOf") else { return };
    // The schema's own fields stand last.
    parts.rotate_right(1);
    let (mut required, mut properties) = (Vec::new(), Map::new());
    for part in parts {
        let of_type = part["$ref"].as_str().and_then(|at| at.rsplit('/').next()).map(str::to_owned);
        let Some(Value::Object(mut part)) = of_type.map_or(Some(part), |of_type| schemas.remove(&of_type))
        else {
            continue;
        };
        required.extend(part.remove("required").and_then(|all| all.as_array().cloned()).unwrap_or_default());
        if let Some(Value::Object(fields)) = part.remove("properties") {
            properties.extend(fields);
        }
    }
    if let Some(Value::Object(whole)) = schemas.get_mut(name) {
        whole.insert("type".into(), "object".into());
        whole.insert("required".into(), required.into());
        whole.insert("properties".into(), properties.into());
    }
}

/// `rules` has rules by property; `+` stands for the schema itself.
fn tighten_schema(schema: &mut Value, rules: Value) {
    let Value::Object(rules) = rules else { return };
    for (property, rule) in rules {
        if property == "+" {
            merge(schema, rule);
        } else if let Some(property) = schema.get_mut("properties").and_then(|all| all.get_mut(&property)) {
            merge(property, rule);
        }
    }
}

/// A rule's words replace the shape's; a `$ref` goes where the shape has one, beside null.
fn merge(schema: &mut Value, rule: Value) {
    let Value::Object(rule) = rule else { return };
    for (word, value) in rule {
        match schema.get_mut("oneOf").and_then(|one_of| one_of.get_mut(0)) {
            Some(first) if word == "$ref" => first[word] = value,
            _ => schema[word] = value,
        }
    }
}

/// A text of at most so many bytes, its ASCII of these ranges. Schemas count characters: as many as fit, whatever the widest of
/// them is. (Not a pattern with numbers in it: those take validators seconds to read.)
struct Text {
    min: usize,
    max: usize,
    ascii: &'static str,
    /// A negative lookahead: it does not begin with this.
    unlike: String,
}

impl Text {
    fn new(min: usize, max: usize) -> Self {
        Self { min, max, ascii: " -~", unlike: String::new() }
    }

    fn alternatives(&self) -> Vec<Value> {
        let Self { min, max, ascii, unlike } = self;
        let wide = [(1, String::new()), (3, "\\u00a0-\\ud7ff\\ue000-\\ufffd".into())];
        let text = |(bytes, wide): (usize, String)| {
            let pattern = format!("^{unlike}[{ascii}{wide}]*$");
            json!({"type": "string", "minLength": min, "maxLength": max / bytes, "pattern": pattern})
        };
        let mut all: Vec<_> = wide.into_iter().map(text).collect();
        // Characters beyond the first plane have no escape that all dialects of patterns share: all but those of ASCII that are out.
        let out = (0..=0x9f_u8).map(char::from).filter(|c| !self.has(*c));
        let out: String = out.map(|c| format!("\\u{:04x}", c as u32)).collect();
        let pattern = format!("^{unlike}[^{out}]*$");
        all.push(json!({"type": "string", "minLength": min, "maxLength": max / 4, "pattern": pattern}));
        all
    }

    fn has(&self, c: char) -> bool {
        let (first, rest) = match self.ascii.strip_prefix("\\t") {
            Some(rest) => (c == '\t', rest),
            None => (false, self.ascii),
        };
        let signs: Vec<_> = rest.chars().collect();
        first || signs.chunks(3).any(|range| matches!(range, [from, '-', to] if (*from..=*to).contains(&c)))
    }

    fn rule(&self) -> Value {
        json!({"anyOf": self.alternatives()})
    }

    /// The same, for a field that may be null.
    fn or_null(&self) -> Value {
        let mut all = self.alternatives();
        all.push(json!({"type": "null"}));
        json!({"anyOf": all})
    }
}

fn id() -> String {
    format!("(?!\\.{{1,2}}$)[A-Za-z0-9._:-]{{1,{}}}", MessageId::LEN_MAX)
}

fn topic() -> Text {
    Text { unlike: "(?!\\.{1,2}$)".into(), ..Text::new(1, Topic::LEN_MAX) }
}

fn sink() -> Text {
    Text { ascii: " -.0-~", ..Text::new(1, SinkName::LEN_MAX) }
}

/// RFC 3339 from 1971 on, with every day that there is.
fn time() -> String {
    let year = "(?:197[1-9]|19[89][0-9]|[2-9][0-9]{3})";
    let leap = "(?:19(?:7[26]|8[048]|9[26])|[2-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[3579][26])00)";
    let day = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
    let clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]{1,32})?";
    let offset = "(?:Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9]|[+-]14:00)";
    format!("(?:{year}-{day}|{leap}-02-29)T{clock}{offset}")
}

/// Milliseconds since 1970: from the first of 2001 (`DUE_MILLIS_MIN`) to the end of 9999.
fn millis() -> &'static str {
    "(?:9783(?:07[2-9]|0[89][0-9]|[1-9][0-9]{2})[0-9]{5}|978[4-9][0-9]{8}|979[0-9]{9}|9[89][0-9]{10}|[1-9][0-9]{12,13}\
     |1[0-9]{14}|2[0-4][0-9]{13}|25[0-2][0-9]{12}|253[0-3][0-9]{11}|25340[01][0-9]{9}|253402[0-2][0-9]{8}|253402300[0-7][0-9]{5})"
}

/// A span in words, or ISO 8601.
fn span() -> String {
    let words =
        "(?:[0-9]{1,4}w)?(?:[0-9]{1,5}d)?(?:[0-9]{1,6}h)?(?:[0-9]{1,8}m)?(?:[0-9]{1,9}s)?(?:[0-9]{1,12}ms)?";
    let iso = "P(?=[0-9T])(?:[0-9]{1,5}D)?(?:T(?=[0-9])(?:[0-9]{1,6}H)?(?:[0-9]{1,8}M)?(?:[0-9]{1,9}S)?)?";
    format!("(?:(?=[0-9]){words}|{iso}|[0-9]{{1,12}})")
}

/// Letters of both cases.
fn any_case(word: &str) -> String {
    let letter = |c: char| {
        let (lower, upper) = (c.to_ascii_lowercase(), c.to_ascii_uppercase());
        if lower == upper { c.to_string() } else { format!("[{upper}{lower}]") }
    };
    word.chars().map(letter).collect()
}

fn property_name() -> Text {
    let whole = Properties::RESERVED.map(|name| format!("{}$", any_case(name)));
    let begun = Properties::RESERVED_PREFIXES.map(any_case);
    let reserved: Vec<_> = whole.into_iter().chain(begun).collect();
    let unlike = format!("(?!{})", reserved.join("|"));
    Text { ascii: " -9;-~", unlike, ..Text::new(1, Properties::NAME_MAX) }
}

fn property_value() -> Value {
    json!({"type": "string", "anyOf": Text { ascii: "\\t -~", ..Text::new(0, Properties::VALUE_MAX) }.alternatives()})
}

/// Standard base64 with padding: bits beyond the last byte are zero.
const BASE64: &str = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// At most one of these has a value.
fn at_most_one(names: &[&str]) -> Vec<Value> {
    let pairs = names.iter().enumerate().flat_map(|(place, one)| {
        names[place + 1..].iter().map(move |two| {
            let given = json!({"not": {"type": "null"}});
            json!({"not": {"required": [one, two], "properties": {*one: given, *two: given}}})
        })
    });
    pairs.collect()
}

/// A dead letter does not come again.
fn dead_without_delay() -> Value {
    let delay = json!({"not": {"type": "null"}});
    json!({"not": {"required": ["dead", "delay"], "properties": {"dead": {"const": true}, "delay": delay}}})
}

/// Exactly one of the two has a value.
fn one_of(one: &str, two: &str) -> Value {
    let only = |this: &str, other: &str| json!({"required": [this], "properties": {this: {"not": {"type": "null"}}, other: {"type": "null"}}});
    json!({"oneOf": [only(one, two), only(two, one)]})
}

/// Ids, or a filter; only a filter has the bounds that a dry run answered with.
fn selection() -> Value {
    let (given, none) = (json!({"not": {"type": "null"}}), json!({"type": "null"}));
    json!({"oneOf": [
        {"required": ["ids"], "properties": {"ids": given, "filter": none, "as_of": none, "matched": none}},
        {"required": ["filter"], "properties": {"filter": given, "ids": none}},
    ]})
}

fn millis_or(min: u64, max: u64, pattern: &str, description: &str) -> Value {
    json!({"description": description, "oneOf": [
        {"type": "integer", "format": "int64", "minimum": min, "maximum": max, "description": "Whole milliseconds."},
        {"type": "string", "pattern": pattern},
    ]})
}

/// Shapes that have one type in the code, and several rules.
fn added() -> [(&'static str, Value); 2] {
    let wait = u64::try_from(queues::WAIT_MAX.as_millis()).unwrap_or(u64::MAX);
    let lease = u64::try_from(queues::LEASE_MAX.as_millis()).unwrap_or(u64::MAX);
    let some = format!("^(?=.*[1-9]){}$", span());
    [
        ("Wait", millis_or(0, wait, &format!("^{}$", span()), "A span of time, 60 s at most.")),
        ("Lease", millis_or(1, lease, &some, "A span of time, more than nothing, 12 h at most.")),
    ]
}

/// By schema and property.
fn rules() -> Vec<(&'static str, Value)> {
    let text = |pattern: &str| json!({"pattern": pattern});
    let at = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let max = Timestamp::MAX.as_millis();
    let ids = json!({"maxItems": BATCH_MAX, "items": {"type": "string", "pattern": format!("^{}$", id())}});
    let receipt = format!("^[0-9a-f]{{1,4}}\\.[0-9a-f]{{1,16}}\\.{}$", id());
    let receipts = json!({"maxItems": receipts::MAX, "items": {"type": "string", "pattern": receipt}});
    let mut single = at_most_one(&["body", "json", "body_base64"]);
    single.extend(at_most_one(&["delay", "deliver_at", "level"]));
    vec![
        (
            "NewMessage",
            json!({
                "+": {"allOf": single},
                "topic": topic().rule(),
                "sink": sink().or_null(),
                "id": text(&format!("^{}$", id())),
                "tag": Text::new(1, Tag::LEN_MAX).or_null(),
                "key": Text::new(1, Key::LEN_MAX).or_null(),
                "body_base64": text(BASE64),
                "properties": {
                    "maxProperties": PROPERTIES_MAX,
                    "propertyNames": property_name().rule(),
                    "additionalProperties": property_value(),
                },
                "priority": {"maximum": 9},
            }),
        ),
        (
            "Retry",
            json!({
                "attempts": {"minimum": 1, "maximum": u32::MAX},
                "backoff": {"enum": ["fixed", "linear", "exponential", null]},
            }),
        ),
        (
            "Delay",
            json!({"+": millis_or(0, max, &format!("^{}$", span()), "A span of time: `\"15m\"`, `\"1h30m\"`, `\"PT15M\"`, or whole milliseconds.")}),
        ),
        (
            "Moment",
            json!({"+": millis_or(DUE_MILLIS_MIN, max, &format!("^{}$", time()), "A point in time: RFC 3339, or milliseconds since 1970. Numbers before 2001 are refused: they are seconds.")}),
        ),
        ("Reschedule", json!({"+": {"allOf": [one_of("delay", "deliver_at")]}})),
        ("BulkRequest", json!({"+": {"allOf": [selection()]}, "ids": ids})),
        (
            "MovedRequest",
            json!({
                "+": {"allOf": [selection(), one_of("delay", "deliver_at")]},
                "ids": ids,
            }),
        ),
        ("Filter", json!({"sink": sink().or_null(), "topic": topic().or_null()})),
        (
            "Receive",
            json!({"max": {"minimum": 1, "maximum": queues::MAX}, "wait": at("Wait"), "lease": at("Lease")}),
        ),
        ("Receipts", json!({"receipts": receipts})),
        (
            "ReceiveAny",
            json!({
                "topics": {"minItems": 1, "maxItems": Receive::QUEUES_MAX, "items": topic().rule()},
                "max": {"minimum": 1, "maximum": queues::MAX},
                "wait": at("Wait"),
                "lease": at("Lease"),
            }),
        ),
        ("Nack", json!({"+": {"allOf": [dead_without_delay()]}, "receipts": receipts})),
        ("Extend", json!({"receipts": receipts, "lease": at("Lease")})),
    ]
}

fn parameter_rule(path: &str, name: &str) -> Option<Value> {
    let text = |pattern: &str| Some(json!({"pattern": pattern}));
    let states = [State::Pending, State::InFlight, State::Delivered, State::Dead, State::Cancelled];
    match (path, name) {
        ("/v1/events", "types") => {
            let kinds = Event::KINDS.join("|");
            text(&format!("^(?:{kinds})(?:,(?:{kinds}))*$"))
        }
        ("/v1/events", _) => None,
        ("/v1/dead", "state") => Some(json!({"enum": [State::Dead.as_str()]})),
        (_, "state") => Some(json!({"enum": states.map(State::as_str)})),
        (_, "id") => text(&format!("^{}$", id())),
        (_, "topic") => Some(topic().rule()),
        (_, "sink" | "name") => Some(sink().rule()),
        (_, "due_from" | "due_to" | "from" | "to") => text(&format!("^(?:{}|{})$", time(), millis())),
        ("/v1/queues", "cursor") => None,
        (_, "cursor") => text(&format!("^[0-9]{{1,15}}-{}$", id())),
        (_, "limit" | "buckets") => Some(json!({"minimum": 1, "maximum": messages::LIMIT_MAX})),
        _ => None,
    }
}
