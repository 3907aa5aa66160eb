"""Answers that were given before, kept in memory for as long as the indexes do not change."""

from __future__ import annotations

from collections.abc import Callable

from cachetools import LRUCache
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CACHE_BYTES = 32 << 20
# What these answer depends on nothing but the address and the state of the indexes.
_PATHS = ("/api/search", "/api/items", "/thumbnails/")
# Unless the address names an upload, which may be gone by the next request.
_UPLOAD = b"upload="
_CONDITION = b"if-none-match"
# Where a request's scope has the application that repeats answers.
ANSWERS = "happier_answers"
# What an answer takes besides its body.
_OVERHEAD = 1024


class AnswerCacheMiddleware:
    """Repeats the answer to an address as long as the indexes are in the same state.

    Only complete answers with status 200 are kept, and only those of a state that did not change while they
    were computed. The newest answers are kept, up to a number of bytes.

    Args:
        app: computes the answers.
        version: names the present state of the indexes.
        limit: bytes to keep.
    """

    def __init__(self, app: ASGIApp, *, version: Callable[[], object], limit: int = CACHE_BYTES) -> None:
        self._app, self._version, self._limit = app, version, limit
        self._state: object = None
        self._answers: LRUCache[tuple[str, bytes], list[Message]] = LRUCache(limit, getsizeof=_size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Repeat an answer, or compute and keep it."""
        if not _repeatable(scope):
            return await self._app({**scope, ANSWERS: self}, receive, send)
        state, key = self._version(), (scope["path"], scope["query_string"])
        if state != self._state:
            self._answers.clear()
            self._state = state
        messages = self._answers.get(key)
        if messages is not None:
            for message in messages:
                await send(message)
            return None
        seen: list[Message] = []

        async def watched(message: Message) -> None:
            seen.append(message)
            await send(message)

        await self._app(scope, receive, watched)
        # The state may have been swapped meanwhile, by this request or by another.
        if state == self._state == self._version() and _complete(seen) and _size(seen) <= self._limit:
            self._answers[key] = seen
        return None


def _repeatable(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and scope["path"].startswith(_PATHS)
        and _UPLOAD not in scope["query_string"]
        and not any(name == _CONDITION for name, _ in scope["headers"])
    )


def _complete(messages: list[Message]) -> bool:
    whole = len(messages) == 2 and not messages[1].get("more_body", False)
    return whole and bool(messages[0]["status"] == 200)


def _size(messages: list[Message]) -> int:
    return _OVERHEAD + len(messages[-1].get("body", b""))
