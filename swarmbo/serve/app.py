"""HTTP application of a broker: routes, token, limits and refusals in one JSON line."""

import asyncio
import hashlib
import hmac
import itertools
import re
import sys
import traceback
from base64 import b64encode
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from importlib.resources import files
from inspect import isawaitable
from queue import PriorityQueue
from threading import Thread
from typing import Any, TypeVar

import msgspec

from swarmbo.errors import ConflictError, RunFolderError, SwarmboError, UnknownQueryError, needed
from swarmbo.serve.broker import Broker
from swarmbo.serve.messages import AskRequest, Health, Refusal, Refused, TellRequest, document, refusal_of
from swarmbo.settings import convert

LARGEST_BODY = 64 * 1024  # bytes
DEEPEST = 8  # lists and tables within one another
SLOWEST_BODY = 10.0  # s
MOST_WAITING = 256  # requests that wait for the worker

T = TypeVar("T")
_TEXTS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', flags=re.DOTALL)
_REFUSED = (
    (UnknownQueryError, 404, "tell a query that /ask gave"),
    (ConflictError, 409, "keep the outcome that was told first"),
    (RunFolderError, 503, "start the service again when its folder can be written"),
    (SwarmboError, 422, "see /openapi.json"),
)
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _Worker:
    """The one thread that calls the broker, so that decisions do not hold up the event loop; tells come before asks."""

    def __init__(self) -> None:
        self._work: PriorityQueue[tuple[int, int, Future[Any], Callable[[], Any]]] = PriorityQueue()
        self._count = itertools.count()
        self._thread = Thread(target=self._run, name="broker", daemon=True)
        self._thread.start()

    async def call(self, rank: int, work: Callable[[], T]) -> T:
        """Result of a call in the thread; calls of a lower rank come first."""
        if (waiting := self._work.qsize()) >= MOST_WAITING:
            wanted, headers = f"at most {MOST_WAITING}", {"Retry-After": "1"}
            raise Refused(503, "too many requests wait", str(waiting), wanted, "ask again later", headers)
        future: Future[T] = Future()
        self._work.put((rank, next(self._count), future, work))
        return await asyncio.wrap_future(future)

    def _run(self) -> None:
        while True:
            rank, _, future, work = self._work.get()
            if rank == _END:
                return
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001  raised again in the coroutine that waits
                    failure = RuntimeError(repr(error)).with_traceback(error.__traceback__)  # it does not end the loop
                    future.set_exception(error if isinstance(error, Exception) else failure)

    def close(self) -> None:
        self._work.put((_END, next(self._count), Future(), lambda: None))
        self._thread.join()


_TELL, _ASK, _END = range(3)  # ranks


class Application:
    """ASGI application; its lifespan ends the thread that calls the broker. The page and ``/healthz`` need no token."""

    def __init__(self, broker: Broker, token: str) -> None:
        parts = ("applications", "routing", "requests", "responses", "exceptions")
        modules = (needed(f"starlette.{part}", "serve", "swarmbo serve") for part in parts)
        starlette, routing, requests, self._responses, exceptions = modules
        self._disconnected: type[Exception] = requests.ClientDisconnect
        self._broker, self._token, self._worker = broker, token, _Worker()
        self._page = files("swarmbo.serve").joinpath("page.html").read_text(encoding="utf-8")
        self._has_reported = False  # a failure of the run folder
        guarded, described = self._guarded, msgspec.json.encode(document())
        self._app = starlette.Starlette(
            routes=[
                routing.Route("/", self._show, methods=["GET"]),
                routing.Route("/healthz", guarded(self._health, is_open=True), methods=["GET"]),
                routing.Route("/ask", guarded(self._ask), methods=["POST"]),
                routing.Route("/tell/{id}", guarded(self._tell), methods=["POST"]),
                routing.Route("/state", guarded(lambda _: broker.state()), methods=["GET"]),
                routing.Route("/best", guarded(lambda _: self._worker.call(_ASK, broker.best)), methods=["GET"]),
                routing.Route("/openapi.json", guarded(lambda _: described), methods=["GET"]),
            ],
            exception_handlers={exceptions.HTTPException: self._on_http_error},
        )
        self._app.router.redirect_slashes = False  # behind a proxy with TLS, it would redirect to HTTP

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a connection, or the lifespan."""
        await self._app(scope, receive, send)
        if scope["type"] == "lifespan":
            self._worker.close()

    def _guarded(self, handler: Callable[[Any], Any], *, is_open: bool = False) -> Callable[[Any], Awaitable[Any]]:
        """Endpoint that requires the token, unless it is open, and answers errors with refusals."""

        async def endpoint(request: Any) -> Any:
            try:
                if not is_open:
                    _require_token(request.headers.get("authorization", ""), self._token)
                found = handler(request)
                return self._answer(await found if isawaitable(found) else found)
            except self._disconnected:  # within its body: no client reads this
                return self._answer(b"", 400)
            except Exception as error:  # noqa: BLE001  clients get one line, whatever happened
                if isinstance(error, RunFolderError) and not self._has_reported:  # for the operator, once
                    self._has_reported = True
                    sys.stderr.write(f"swarmbo: {' '.join(str(error).split())}\n")
                refused = error if isinstance(error, Refused) else _refusal_for(error)
                return self._answer(refused.refusal, refused.status, refused.headers)

        return endpoint

    def _answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Any:
        content = value if isinstance(value, bytes) else msgspec.json.encode(value)
        given = {**_HEADERS, **(headers or {})}
        return self._responses.Response(content + b"\n", status, media_type="application/json", headers=given)

    def _health(self, _request: Any) -> Health:
        self._broker.ledger.require_whole()
        return Health()

    async def _ask(self, request: Any) -> Any:
        given = convert(await _body(request), AskRequest)
        return await self._worker.call(_ASK, partial(self._broker.ask, given))

    async def _tell(self, request: Any) -> Any:
        given = convert(await _body(request), TellRequest)
        return await self._worker.call(_TELL, partial(self._broker.tell, request.path_params["id"], given))

    async def _show(self, _request: Any) -> Any:
        headers = {**_HEADERS, "Content-Security-Policy": _policy(self._page)}
        return self._responses.Response(self._page, media_type="text/html", headers=headers)

    async def _on_http_error(self, request: Any, error: Any) -> Any:
        got = f"{request.method} {request.url.path}"[:200]
        refusal = Refusal(str(error.detail), got, "a path and a method of /openapi.json", "see /openapi.json")
        return self._answer(refusal, error.status_code, dict(error.headers or {}))


def _require_token(header: str, token: str) -> None:
    """Refuse a missing or wrong token; the comparison takes constant time."""
    scheme, _, given = header.partition(" ")
    is_same = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode())
    if not is_same or scheme.lower() != "bearer":
        got = "another token" if header else "no token"
        fix = "send the header Authorization: Bearer TOKEN; the token is in the file that the service named"
        raise Refused(401, "the token is missing or wrong", got, "the token", fix, {"WWW-Authenticate": "Bearer"})


async def _body(request: Any) -> Any:
    content = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            async for chunk in request.stream():
                content += chunk
                if len(content) > LARGEST_BODY:
                    got, wanted = f"more than {LARGEST_BODY} bytes", f"at most {LARGEST_BODY}"
                    raise Refused(413, "the body is too large", got, wanted, "send less", {"Connection": "close"})
    except TimeoutError:
        got, wanted = f"{len(content)} bytes", f"all within {SLOWEST_BODY:g} s"
        raise Refused(408, "the body took too long", got, wanted, "send it at once", {"Connection": "close"}) from None
    parts = (found[0] for found in _TEXTS_AND_BRACKETS.finditer(content))
    steps = ({b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(part, 0) for part in parts)
    if (deep := max(itertools.accumulate(steps), default=0)) > DEEPEST:
        raise Refused(400, "the body is nested too deeply", str(deep), f"at most {DEEPEST}", "send plain tables")
    try:
        return msgspec.json.decode(bytes(content))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        got = bytes(content[:40]).decode("utf-8", "replace")
        fix = "see /openapi.json; a failed outcome is null, not NaN"
        raise Refused(400, f"the body is no JSON: {error}", got, "a JSON object", fix) from None


def _refusal_for(error: Exception) -> Refused:
    for kind, status, fix in _REFUSED:
        if isinstance(error, kind):
            headers = {"Retry-After": "60"} if status == 503 else None
            return Refused(status, *msgspec.structs.astuple(refusal_of(error, fix)), headers=headers)
    # an error of the service itself: its traceback is for the operator, not for clients
    traceback.print_exception(error, file=sys.stderr)
    return Refused(500, "the service failed", type(error).__name__, "an answer", "see its output")


def _policy(page: str) -> str:
    """Content security policy: permit the page's own script and style, and nothing else."""
    parts = [re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)[0] for tag in ("script", "style")]
    script, style = (b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
