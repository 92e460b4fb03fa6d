//! The management API for Python programs: its description by an independent validator, its metrics by the parser of
//! Prometheus's client. Needs the `.venv` of `run-tests`.

use std::process::Command;
use std::sync::Arc;

use flashwise_server::manage::{Api, ApiOptions, Tokens};

use crate::api::fake::Fake;

/// Runs a script of assertions, which gets the address of an API as its argument.
fn python(script: &str) {
    let python = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let tokens = Tokens { change: Some("sesame".to_owned()), ..Tokens::default() };
    let options = ApiOptions { tokens, ..ApiOptions::default() };
    let api = Api::start(&"127.0.0.1:0".parse().unwrap(), options, Arc::new(Fake::default())).unwrap();
    let output = Command::new(&python).args(["-c", script, &api.address().to_string()]).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", python.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const GET: &str = r#"
import json, sys, urllib.request
def get(path):
    headers = {"Authorization": "Bearer sesame"}
    request = urllib.request.Request(f"http://{sys.argv[1]}{path}", headers=headers)
    with urllib.request.urlopen(request) as answer:
        return answer.headers["Content-Type"], answer.read().decode()
"#;

#[test]
fn the_description_is_valid_and_the_status_is_as_it_says() {
    python(&format!(
        "{GET}{}",
        r##"
import openapi_spec_validator, jsonschema
_, text = get("/openapi.json")
spec = json.loads(text)
assert spec["openapi"].startswith("3.1"), spec["openapi"]
openapi_spec_validator.validate(spec)
def check(value, name):
    schema = {"$ref": f"#/components/schemas/{name}", "components": spec["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)
status = json.loads(get("/v1/status")[1])
check(status, "ServerStatus")
check(json.loads(get("/v1/volumes/one")[1]), "VolumeStatus")
check(json.loads(get("/v1/volumes/one/detach")[1]), "DetachProgress")
check(json.loads(get("/v1/volumes/one/what-if")[1]), "WhatIfStatus")
check(json.loads(get("/v1/session")[1]), "Session")
# The check checks.
status["volumes"][0]["reads"] = "ten"
try:
    check(status, "ServerStatus")
except jsonschema.ValidationError:
    pass
else:
    raise AssertionError("a wrong status passed")
"##
    ));
}

#[test]
fn the_metrics_are_read_by_the_parser_of_prometheus() {
    python(&format!(
        "{GET}{}",
        r#"
from prometheus_client.openmetrics.parser import text_string_to_metric_families
content_type, text = get("/metrics")
assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8", content_type
families = {family.name: family for family in text_string_to_metric_families(text)}
assert len(families) > 30
for family in families.values():
    assert family.documentation and family.type in ("counter", "gauge", "histogram", "info"), family
    if family.unit:
        assert family.name.endswith("_" + family.unit), family.name
    for word in ("bytes", "seconds"):
        assert family.unit == word or not family.name.endswith("_" + word), family.name
def value(name, **labels):
    family = families[name]
    return [sample.value for sample in family.samples if labels.items() <= sample.labels.items()]
assert value("flashwise_client_read_bytes", volume="one") == [40960]
assert value("flashwise_failed_requests", volume="two / three") == [1000]
samples = {sample.name: sample.value for sample in families["flashwise_request_duration_seconds"].samples if sample.labels["volume"] == "one"}
assert samples["flashwise_request_duration_seconds_count"] == 3
assert abs(samples["flashwise_request_duration_seconds_sum"] - 20.00012) < 1e-9
"#
    ));
}
