"""What schemathesis must know of Duly besides its OpenAPI file."""

import json

import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

# Refusals of what is valid by the schema. Each depends on what a schema cannot say: on settings, on the clock, or on two fields at once.
EXPLAINED = {
    "too_far": "limits.delay counts from now",
    "too_long": "a text such as 90m has no maximum",
    "unknown_sink": "the sinks are configured",
    "unknown_level": "the levels are configured",
    "body_too_large": "limits.body is configured",
    "too_many_properties": "limits.properties is configured",
    "too_many": "limits.batch is configured",
    "bad_retry": "retry.min is not longer than retry.max",
    "bad_span": "to lies after from",
    "bad_selection": "as_of and at_most go with a filter",
    "too_many_topics": "limits.topics is configured",
    "too_many_pending": "limits.pending is configured",
    # Not refused for their form at all:
    "not_found": "no such message",
    "no_such_sink": "no such sink",
    "too_late": "its state does not allow it",
    "id_conflict": "known with other content",
}


@schemathesis.check
def valid_by_schema_is_accepted(ctx, response, case):
    if response.headers.get("content-type", [""])[0] == "application/problem+json":
        if json.loads(response.content).get("code") in EXPLAINED:
            return None
    return positive_data_acceptance(ctx, response, case)


RECEIVES = {"POST /v1/queues/{topic}/receive", "POST /v1/receive"}


@schemathesis.hook
def before_call(ctx, case, kwargs):
    # Nobody sends what it would wait for, and each call would take up to a minute. What is invalid is answered at once.
    if case.operation.label in RECEIVES and case.meta.generation.mode.is_positive:
        if isinstance(case.body, dict) and case.body.get("wait") is not None:
            case.body["wait"] = 1 if isinstance(case.body["wait"], int) else "1ms"


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return json.dumps(value).encode() + b"\n"
