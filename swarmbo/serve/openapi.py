"""OpenAPI 3.1 document of the service, from the schemas of its messages."""

from typing import Any

import msgspec

import swarmbo
from swarmbo.serve.messages import Asked, AskRequest, Best, Health, Refusal, State, TellRequest, Told

_REFUSALS = {
    400: "no JSON, or nested too deeply",
    401: "no token, or a wrong one",
    404: "the query was never asked",
    408: "the body took too long",
    409: "another outcome was told",
    410: "all queries are told",
    413: "the body is too large",
    422: "JSON with a wrong key or value",
    429: "too many queries are pending; ask again after Retry-After seconds",
    503: "the service is full, or its disk",
}


def document() -> dict[str, Any]:
    """OpenAPI document as plain data."""
    named: tuple[type[msgspec.Struct], ...] = (Asked, AskRequest, Best, Health, Refusal, State, TellRequest, Told)
    references, schemas = msgspec.json.schema_components(named, ref_template="#/components/schemas/{name}")
    of: dict[type[msgspec.Struct], Any] = dict(zip(named, references, strict=True))

    def content(kind: type[msgspec.Struct]) -> dict[str, Any]:
        return {"application/json": {"schema": of[kind]}}

    def operation(
        name: str, summary: str, answer: type[msgspec.Struct] | None, body: type[msgspec.Struct] | None, *refused: int
    ) -> dict[str, Any]:
        known = {"application/json": {"schema": {"type": "object"}}} if answer is None else content(answer)
        answers: dict[str, Any] = {"200": {"description": "done", "content": known}}
        answers |= {str(code): {"description": _REFUSALS[code], "content": content(Refusal)} for code in refused}
        found: dict[str, Any] = {"operationId": name, "summary": summary, "responses": answers}
        return found if body is None else {**found, "requestBody": {"required": True, "content": content(body)}}

    body = (400, 401, 408, 413, 422, 503)
    told = operation(
        "tell", "Tell the outcome of a query; again with the same value changes nothing", Told, TellRequest
    )
    told["responses"] = operation("", "", Told, None, *sorted((*body, 404, 409)))["responses"]
    told["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    asked = operation("ask", "Query to evaluate, on loan", Asked, AskRequest, *sorted((*body, 410, 429)))
    health = operation("health", "Sign of life", Health, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "swarmbo serve",
            "version": swarmbo.__version__,
            "description": "Ask for points to evaluate, and tell their outcomes.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"token": []}],
        "paths": {
            "/ask": {"post": asked},
            "/tell/{id}": {"post": told},
            "/state": {"get": operation("state", "State of the service", State, None, 401)},
            "/best": {"get": operation("best", "Best outcome and recommendation", Best, None, 401, 503)},
            "/openapi.json": {"get": operation("document", "This document", None, None, 401)},
            "/healthz": {"get": {**health, "security": []}},
        },
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
