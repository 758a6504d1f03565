"""Bodies of requests and answers; the OpenAPI document that is made from them."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

import swarmbo
from swarmbo.settings import Settings
from swarmbo.spaces.variables import Choice, Variable

LONGEST_LEASE = 366 * 86_400.0  # s
_GOT = re.compile(r"(?:\bgot|\bunknown key|^query(?=[^:]* was never)) (.*?)(?=; |: wanted| was never|$)")
_WANTED = re.compile(r"\b(?:wanted|known keys.*?:|recorded before:|waiting for outcomes:) ([^;]*)(?:; (.*))?")
_NEAR = re.compile(r"; (did you mean .*)")
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


class AskRequest(Settings, frozen=True):
    """Request of a query.

    Args:
        key: Name of this request, 1 to 200 characters; a repeated key gets the same query again.
        lease_s: Seconds until the query is handed on to another client, unless it is told.
    """

    key: Annotated[str, Meta(min_length=1, max_length=200)]
    lease_s: Annotated[float, Meta(gt=0, le=LONGEST_LEASE)] = 3600.0


class TellRequest(Settings, frozen=True):
    """Outcome of a query.

    Args:
        outcome: Total of a function, or outcomes by factor; in a field measurements by agent; null means failed.
        failed: True if outcomes that are not given failed.
        point: For a function: actual point of the evaluation, if not the one asked for.
        locations: In a field: actual locations of agents' measurements, if not those asked for.
        noise_std: Known standard deviation of the noise, one number or by factor or agent.
    """

    outcome: float | dict[str, float | None] | UnsetType | None = UNSET
    failed: bool = False
    point: dict[str, Choice] | None = None
    locations: dict[str, list[float]] | None = None
    noise_std: float | dict[str, float] | None = None


class Asked(msgspec.Struct, frozen=True):
    """A query that a client holds.

    Args:
        query: Id, for the tell.
        point: Value of each variable.
        locations: In a field, the location of each agent; empty for a function.
        until: End of the lease, s since 1970; None if another client holds the query now, or it is told.
        told: True if its outcome was recorded already.
        handed_on: Number of leases that ran out before.
        mean: Expected outcome; None in the initial design.
        std: Standard deviation of the expected outcome.
    """

    query: str
    point: dict[str, Choice]
    locations: dict[str, list[float]]
    until: float | None
    told: bool
    handed_on: int
    mean: float | None
    std: float | None


class Told(msgspec.Struct, frozen=True):
    """Answer to an outcome.

    Args:
        query: Id of the query.
        is_new: False if this very outcome was recorded before.
        is_pending: True if the query waits for further outcomes.
        told: Number of queries told so far.
        rounds: Number of queries planned.
    """

    query: str
    is_new: bool
    is_pending: bool
    told: int
    rounds: int


class Waiting(msgspec.Struct, frozen=True):
    """A pending query, its point or locations, the end of its lease in s since 1970, and the number of ended leases."""

    query: str
    point: dict[str, Choice]
    until: float
    handed_on: int


class Best(msgspec.Struct, frozen=True):
    """Largest outcome so far with its query, and the point that the team recommends with its expected outcome."""

    outcome: float | None = None
    query: str | None = None
    point: dict[str, Choice] | None = None
    recommended: dict[str, Choice] | None = None
    mean: float | None = None
    std: float | None = None


class State(msgspec.Struct, frozen=True):
    """State of the service.

    Args:
        name: Name of the scenario.
        seed: Its seed.
        rounds: Number of queries planned.
        asked: Number of queries asked.
        told: Number of queries told.
        failed: Number of outcomes that failed.
        now: Time of the service, s since 1970.
        variables: (low, high) of each variable, or its type.
        is_field: True if agents measure at locations of their own.
        unit: Unit of outcomes, if known.
        maximum: Maximum of the function, if known.
        pending: Pending queries, in the order of asks.
        best: Best outcome so far.
        curve: Number of outcomes and the best of them, each time it rose.
        outcomes: Last outcomes, at most 500, in order of arrival; null for failed ones.
        first: Number of outcomes before these.
    """

    name: str
    seed: int
    rounds: int
    asked: int
    told: int
    failed: int
    now: float
    variables: dict[str, tuple[float, float] | Variable]
    is_field: bool
    unit: str
    maximum: float | None
    pending: list[Waiting]
    best: Best
    curve: list[tuple[int, float]]
    outcomes: list[float | None]
    first: int


class Health(msgspec.Struct, frozen=True):
    """Sign of life."""

    status: str = "ok"


class Refusal(msgspec.Struct, frozen=True):
    """Refused request.

    Args:
        what: Error, in one line.
        got: Refused value.
        wanted: Accepted values.
        fix: Remedy.
    """

    what: str
    got: str
    wanted: str
    fix: str


class Refused(Exception):  # noqa: N818  no error of the service
    """Request that is refused with an HTTP status."""

    def __init__(self, status: int, what: str, got: str, wanted: str, fix: str, headers: Any = None) -> None:
        super().__init__(what)
        self.status, self.refusal, self.headers = status, Refusal(what, got, wanted, fix), headers or {}


def refusal_of(error: Exception, fix: str = "see /openapi.json") -> Refusal:
    """Refusal from the parts of an error's message."""
    text = " ".join(str(error).split())
    got, found, near = _GOT.search(text), _WANTED.search(text), _NEAR.search(text)
    wanted, remedy = ("a request as in /openapi.json", near and near[1]) if found is None else found.groups()
    return Refusal(text, "the request" if got is None else got[1], wanted, remedy or fix)


def document() -> dict[str, Any]:
    """OpenAPI document as plain data."""
    named: tuple[type[msgspec.Struct], ...] = (Asked, AskRequest, Best, Health, Refusal, State, TellRequest, Told)
    references, schemas = msgspec.json.schema_components(named, ref_template="#/components/schemas/{name}")
    of: dict[type[msgspec.Struct] | None, Any] = {None: {"type": "object"}, **dict(zip(named, references, strict=True))}

    def content(kind: type[msgspec.Struct] | None) -> dict[str, Any]:
        return {"application/json": {"schema": of[kind]}}

    def operation(
        name: str, summary: str, answer: type[msgspec.Struct] | None, body: type[msgspec.Struct] | None, *refused: int
    ) -> dict[str, Any]:
        answers: dict[str, Any] = {"200": {"description": "done", "content": content(answer)}}
        answers |= {str(n): {"description": _REFUSALS[n], "content": content(Refusal)} for n in sorted(refused)}
        found: dict[str, Any] = {"operationId": name, "summary": summary, "responses": answers}
        return found if body is None else {**found, "requestBody": {"required": True, "content": content(body)}}

    body = (400, 401, 408, 413, 422, 503)
    summary = "Tell the outcome of a query; again with the same value changes nothing"
    tell_operation = operation("tell", summary, Told, TellRequest, *body, 404, 409)
    tell_operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    asked = operation("ask", "Query to evaluate, on lease", Asked, AskRequest, *body, 410, 429)
    health = operation("health", "Sign of life", Health, None, 503)
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
            "/tell/{id}": {"post": tell_operation},
            "/state": {"get": operation("state", "State of the service", State, None, 401)},
            "/best": {"get": operation("best", "Best outcome and recommendation", Best, None, 401, 503)},
            "/openapi.json": {"get": operation("document", "This document", None, None, 401)},
            "/healthz": {"get": {**health, "security": []}},
        },
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
