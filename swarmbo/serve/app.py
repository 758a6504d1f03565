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
        """Result of a call; those of a lower rank come first."""
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
                except Exception as error:  # noqa: BLE001  raised again by whoever waits
                    future.set_exception(error)

    def close(self) -> None:
        self._work.put((_END, next(self._count), Future(), lambda: None))
        self._thread.join()


_TELL, _ASK, _END = range(3)  # ranks


def make_app(broker: Broker, token: str) -> Any:
    """ASGI application; its lifespan ends the thread that calls the broker. The page and ``/healthz`` need no token."""
    parts = ("applications", "routing", "requests", "responses", "exceptions")
    modules = (needed(f"starlette.{part}", "serve", "swarmbo serve") for part in parts)
    starlette, routing, requests, responses, exceptions = modules
    worker, page = _Worker(), files("swarmbo.serve").joinpath("page.html").read_text(encoding="utf-8")
    described, noted = msgspec.json.encode(document()), list[str]()

    def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Any:
        content = value if isinstance(value, bytes) else msgspec.json.encode(value)
        given = {**_HEADERS, **(headers or {})}
        return responses.Response(content + b"\n", status, media_type="application/json", headers=given)

    def guarded(handler: Callable[[Any], Any], *, is_open: bool = False) -> Callable[[Any], Awaitable[Any]]:
        async def endpoint(request: Any) -> Any:
            try:
                if not is_open:
                    _require_token(request.headers.get("authorization", ""), token)
                found = handler(request)
                return answer(await found if isawaitable(found) else found)
            except requests.ClientDisconnect:  # within its body: nobody reads this
                return answer(b"", 400)
            except Exception as error:  # noqa: BLE001  clients get one line, whatever happened
                if isinstance(error, RunFolderError) and not noted:  # for whoever runs it, once
                    noted.append(" ".join(str(error).split()))
                    sys.stderr.write(f"swarmbo: {noted[0]}\n")
                refused = error if isinstance(error, Refused) else _refusal_for(error)
                return answer(refused.refusal, refused.status, refused.headers)

        return endpoint

    health = guarded(lambda _: broker.ledger.require_whole() or Health(), is_open=True)

    async def ask(request: Any) -> Any:
        return await worker.call(_ASK, partial(broker.ask, convert(await _body(request), AskRequest)))

    async def tell(request: Any) -> Any:
        given = convert(await _body(request), TellRequest)
        return await worker.call(_TELL, partial(broker.tell, request.path_params["id"], given))

    async def show(request: Any) -> Any:
        headers = {**_HEADERS, "Content-Security-Policy": _policy(page)}
        return responses.Response(page, media_type="text/html", headers=headers)

    async def on_http_error(request: Any, error: Any) -> Any:
        got = f"{request.method} {request.url.path}"[:200]
        refusal = Refusal(str(error.detail), got, "a path and a method of /openapi.json", "see /openapi.json")
        return answer(refusal, error.status_code, dict(error.headers or {}))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await routed(scope, receive, send)
        if scope["type"] == "lifespan":
            worker.close()

    routed = starlette.Starlette(
        routes=[
            routing.Route("/", show, methods=["GET"]),
            routing.Route("/healthz", health, methods=["GET"]),
            routing.Route("/ask", guarded(ask), methods=["POST"]),
            routing.Route("/tell/{id}", guarded(tell), methods=["POST"]),
            routing.Route("/state", guarded(lambda _: broker.state()), methods=["GET"]),
            routing.Route("/best", guarded(lambda _: worker.call(_ASK, broker.best)), methods=["GET"]),
            routing.Route("/openapi.json", guarded(lambda _: described), methods=["GET"]),
        ],
        exception_handlers={exceptions.HTTPException: on_http_error},
    )
    routed.router.redirect_slashes = False  # behind a proxy with TLS, it would redirect to HTTP
    return app


def _require_token(header: str, token: str) -> None:
    """Compare in constant time."""
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
    # an error of the service itself: its place is for whoever runs it, not for clients
    traceback.print_exception(error, file=sys.stderr)
    return Refused(500, "the service failed", type(error).__name__, "an answer", "see its output")


def _policy(page: str) -> str:
    """Content policy: the page's own script and style, and nothing from elsewhere."""
    parts = [re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)[0] for tag in ("script", "style")]
    script, style = (b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
