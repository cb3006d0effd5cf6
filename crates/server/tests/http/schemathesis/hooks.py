"""What schemathesis must know of Duly besides its OpenAPI file."""

import json

import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

# Refusals of what is valid by the schema. Each depends on what a schema cannot say: on settings, on the clock, or on two fields at once.
EXPLAINED = {
    "too_far": "limits.delay counts from now",
    "too_long": "a text such as 90m has no maximum",
    "body_too_large": "limits.body is configured",
    "too_many_properties": "limits.properties is configured",
    "too_many": "limits.batch is configured",
    "bad_retry": "retry.min is not longer than retry.max",
    "bad_span": "to lies after from",
    "too_many_topics": "limits.topics is configured",
    "too_many_pending": "limits.pending is configured",
    # Not refused for their form at all:
    "not_found": "no such message",
    "too_late": "its state does not allow it",
    "id_conflict": "known with other content",
}


@schemathesis.check
def valid_by_schema_is_accepted(ctx, response, case):
    if response.headers.get("content-type", [""])[0] == "application/problem+json":
        if json.loads(response.content).get("code") in EXPLAINED:
            return None
    return positive_data_acceptance(ctx, response, case)


@schemathesis.check
def invalid_by_schema_is_refused(ctx, response, case):
    # A batch answers bad items in their places, with 200 for the whole.
    if case.operation.path == "/v1/messages/batch":
        return None
    # Now and then nothing of an "invalid" call is invalid, such as an optional body left out; its description says so.
    data = case.meta.phase.data if case.meta else None
    if (getattr(data, "description", None) or "").lower() == "positive test case":
        return None
    return negative_data_rejection(ctx, response, case)


# What the server of this test has configured. A schema names no names, so that a generated one would be refused each time.
SINK = "streams"
LEVEL = "P0"


def named(value):
    """The same body with names that there are."""
    if isinstance(value, list):
        return [named(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = dict(value)
    if isinstance(value.get("sink"), str):
        value["sink"] = SINK
    if isinstance(value.get("level"), str):
        value["level"] = LEVEL
    if isinstance(value.get("filter"), dict):
        value["filter"] = named(value["filter"])
    return value


RECEIVES = {"POST /v1/queues/{topic}/receive", "POST /v1/receive"}


@schemathesis.hook
def before_call(ctx, case, kwargs):
    if not case.meta.generation.mode.is_positive:
        return
    case.body = named(case.body)
    if "name" in (case.path_parameters or {}):
        case.path_parameters["name"] = SINK
    if "sink" in (case.query or {}):
        case.query["sink"] = SINK
    # Nobody sends what it would wait for, and each call would take up to a minute. What is invalid is answered at once.
    if case.operation.label in RECEIVES:
        if isinstance(case.body, dict) and case.body.get("wait") is not None:
            case.body["wait"] = 1 if isinstance(case.body["wait"], int) else "1ms"


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return json.dumps(value).encode() + b"\n"
