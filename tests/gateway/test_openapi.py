"""The description of the routes: true, complete, and what a fuzzer finds by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from running_gateway import RunningGateway, running_gateway, user
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode

from openclaw_rl.gateway.protocols.chat import ChatRequest
from openclaw_rl.gateway.protocols.messages import MessagesRequest
from openclaw_rl.gateway.protocols.responses import ResponsesRequest

BODIES = {
    "/v1/chat/completions": ChatRequest,
    "/v1/messages": MessagesRequest,
    "/v1/responses": ResponsesRequest,
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("openapi")) as running:
        yield running


@pytest.fixture(scope="module")
def described(gateway: RunningGateway) -> dict[str, Any]:
    response = gateway.http.get("/openapi.json")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_field_that_a_protocol_reads_is_described(described: dict[str, Any]) -> None:
    for path, body in BODIES.items():
        content = described["paths"][path]["post"]["requestBody"]["content"]
        assert set(content["application/json"]["schema"]["properties"]) == set(body.model_fields)


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    found = set(references(described))
    assert found
    for reference in found:
        assert reference.removeprefix("#/components/schemas/") in described["components"]["schemas"]


def test_every_route_says_what_it_is_and_how_it_refuses(described: dict[str, Any]) -> None:
    operations = [(path, o) for path, methods in described["paths"].items() for o in methods.values()]
    assert len(operations) > 10
    for path, operation in operations:
        assert operation["description"], path
        (refusal,) = references(operation["responses"]["default"])
        assert refusal.endswith("AnthropicError" if path.startswith("/v1/messages") else "/Error")
        assert "422" not in operation["responses"]


def test_streams_are_described_where_they_exist(described: dict[str, Any]) -> None:
    streaming = {
        path
        for path, methods in described["paths"].items()
        for operation in methods.values()
        if "text/event-stream" in operation["responses"]["200"]["content"]
    }
    assert streaming == set(BODIES)


def test_no_page_that_loads_scripts_is_served(gateway: RunningGateway) -> None:
    assert gateway.http.get("/docs").status_code == gateway.http.get("/redoc").status_code == 404


def test_what_schemathesis_makes_of_the_description_never_breaks_the_server(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    schema = schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")
    asked = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        # Without a body there is nothing to get wrong.
        modes = list(GenerationMode) if operation.body else [GenerationMode.POSITIVE]
        for mode in modes:

            @settings(
                max_examples=25,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(operation.as_strategy(generation_mode=mode))
            def always(case: Any) -> None:
                nonlocal asked
                asked += 1
                case.call_and_validate(checks=[not_a_server_error], timeout=20)

            always()
    assert asked > 200
    assert "Error" not in caplog.text
    assert gateway.chat(user("still there?")).reply["content"] == "fine"
