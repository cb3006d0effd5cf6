//! The variables of OpenTelemetry, which say what neither the file nor a variable of Duly does.

use percent_encoding::percent_decode_str;

use super::{
    Origin, Problem, otlp,
    written::{Node, Table, Value},
};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const PATH: [&str; 2] = ["telemetry", "otlp"];

/// Fills in what they say. Gives the headers' values, which may be secrets.
pub(super) fn fill(
    table: &mut Table,
    variables: &[(String, String)],
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    };
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"));
    if is_off || !otlp::IS_BUILT {
        return Vec::new();
    }
    if let Some(endpoint) = variable(ENDPOINT)
        && put(table, &[], "endpoint", endpoint, ENDPOINT)
        && let Some(other) = variable(PROTOCOL).filter(|protocol| *protocol != "http/protobuf")
    {
        let detail =
            format!("it is {other:?}, and Duly exports by http/protobuf only (port 4318 of most collectors)");
        problems.push(Problem::new("telemetry.otlp", Origin::Environment(PROTOCOL.into()), detail));
    }
    let mut secrets = Vec::new();
    if let Some(resource) = inner(table, &["resource"]) {
        *resource = otlp::flat(std::mem::take(resource), "").into_iter().collect();
    }
    for (name, value) in pairs(variable("OTEL_EXPORTER_OTLP_HEADERS")) {
        put(table, &["headers"], &name.to_ascii_lowercase(), &value, "OTEL_EXPORTER_OTLP_HEADERS");
        secrets.push(value);
    }
    if let Some(name) = variable("OTEL_SERVICE_NAME") {
        put(table, &["resource"], "service.name", name, "OTEL_SERVICE_NAME");
    }
    for (name, value) in pairs(variable("OTEL_RESOURCE_ATTRIBUTES")) {
        put(table, &["resource"], &name, &value, "OTEL_RESOURCE_ATTRIBUTES");
    }
    secrets
}

/// `a=b,c=d%20e`.
fn pairs(text: Option<&str>) -> impl Iterator<Item = (String, String)> {
    let pairs = text.unwrap_or_default().split(',').filter_map(|pair| pair.split_once('='));
    let decoded = |value: &str| percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
    pairs.map(move |(name, value)| (name.trim().to_owned(), decoded(value)))
}

/// Puts a value in, unless there is one. Gives whether it did.
fn put(table: &mut Table, below: &[&str], name: &str, value: &str, variable: &str) -> bool {
    let Some(table) = inner(table, below) else { return false };
    let is_new = !table.contains_key(name);
    let origin = || Origin::Environment(variable.into());
    table.entry(name.to_owned()).or_insert_with(|| Node::new(Value::Text(value.into()), origin()));
    is_new
}

/// The table for the export, or one in it. `None`: something else stands there, and the reader complains of it.
fn inner<'t>(table: &'t mut Table, below: &[&str]) -> Option<&'t mut Table> {
    PATH.iter().chain(below).try_fold(table, |table, step| {
        let empty = || Node::new(Value::Table(Table::new()), Origin::Default);
        match &mut table.entry((*step).to_owned()).or_insert_with(empty).value {
            Value::Table(inner) => Some(inner),
            _ => None,
        }
    })
}

#[cfg(test)]
#[cfg(feature = "otel")]
mod tests {
    use std::fs;

    use super::super::{Config, Flags, Sources};

    fn load(file: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("duly.toml");
        fs::write(&path, file).unwrap();
        let environment =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Config::load(&Sources { file: Some(path), environment, flags: Flags::default() })
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn the_usual_variables_say_what_the_file_does_not() {
        let usual = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20abc, x-tenant=a"),
            ("OTEL_SERVICE_NAME", "shop"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=lost,deployment.environment.name=prod"),
        ];
        let otlp = load("", &usual).unwrap().otlp.unwrap();
        assert_eq!(otlp.endpoint.reveal(), "http://collector:4318");
        let headers: Vec<_> =
            otlp.headers.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
        assert_eq!(headers, [("authorization", "Basic abc"), ("x-tenant", "a")]);
        let resource: Vec<_> =
            otlp.resource.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(resource, [("deployment.environment.name", "prod"), ("service.name", "shop")]);

        let file = "[telemetry.otlp]\nendpoint = \"https://own/otlp\"\nresource.service.name = \"own\"";
        let otlp = load(file, &usual).unwrap().otlp.unwrap();
        assert_eq!(
            (otlp.endpoint.reveal(), otlp.resource["service.name"].as_str()),
            ("https://own/otlp", "own")
        );
        assert_eq!(otlp.resource.len(), 2, "the rest of it is filled in");

        let off = [usual[0], ("OTEL_SDK_DISABLED", "true")];
        assert!(load("", &off).unwrap().otlp.is_none());
        assert!(load("", &[]).unwrap().otlp.is_none());
        let ours = [usual[0], ("DULY__TELEMETRY__OTLP__ENDPOINT", "http://ours:4318")];
        assert_eq!(load("", &ours).unwrap().otlp.unwrap().endpoint.reveal(), "http://ours:4318");
    }

    #[test]
    fn a_protocol_that_is_not_spoken_is_told_and_no_secret_is() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let problems = load("", &[endpoint, grpc]).unwrap_err();
        assert!(problems.contains("OTEL_EXPORTER_OTLP_PROTOCOL") && problems.contains("4318"), "{problems}");
        let own = "[telemetry.otlp]\nendpoint = \"http://own:4318\"";
        assert!(load(own, &[endpoint, grpc]).is_ok(), "the variables are about another endpoint");
        let bad = load("", &[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "a b=planted-secret")]).unwrap_err();
        assert!(bad.contains("telemetry.otlp.headers") && !bad.contains("planted"), "{bad}");
    }
}
