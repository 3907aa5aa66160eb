"""Clients of a running server: `Client` to call, `AsyncClient` to await."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Self, cast

from happier.client import types
from happier.client.calls import Call, Combination, ImageFile, add_call, items_call, search_call
from happier.errors import ServerError, first_line
from happier.extras import needs_extra

with needs_extra("client"):
    import httpx

SECONDS = 60.0
RETRIES = 3
# Refused before anything was done; and given up, when something may have been done.
_REFUSED, _GIVEN_UP = 429, 503


class _Connection:
    """What both clients share: the address, the token, and how an answer is read."""

    def __init__(self, address: str, *, token: str | None = None, retries: int = RETRIES) -> None:
        self.address = address.rstrip("/")
        self._retries = retries
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    def _settings(self) -> dict[str, Any]:
        return {"base_url": self.address, "headers": self._headers, "timeout": SECONDS}

    def _wait(self, call: Call, outcome: httpx.Response | httpx.TransportError, attempt: int) -> float | None:
        """Seconds after which to try again; None where the outcome is final."""
        if attempt >= self._retries:
            return None
        refused = isinstance(outcome, httpx.Response) and outcome.status_code == _REFUSED
        # A change that may have taken place is not sent twice.
        if call.changes and not refused:
            return None
        pause: float = 0.2 * 2**attempt
        if isinstance(outcome, httpx.TransportError):
            return pause
        if outcome.status_code not in (_REFUSED, _GIVEN_UP):
            return None
        after = outcome.headers.get("retry-after", "")
        return float(after) if after.isdecimal() else pause

    def _answer(self, outcome: httpx.Response | httpx.TransportError) -> httpx.Response:
        if isinstance(outcome, httpx.TransportError):
            raise ServerError(f"{self.address} does not answer: {first_line(outcome)}") from outcome
        if outcome.is_success:
            return outcome
        try:
            detail = str(outcome.json()["detail"])
        except (ValueError, KeyError, TypeError):
            detail = outcome.text[:200]
        raise ServerError(f"{self.address} answered {outcome.status_code}: {detail}", outcome.status_code)

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError as error:
            raise ServerError(f"{self.address} is not `happier serve`: its answer is not JSON") from error

    def _picture_call(self, address: str) -> Call:
        """Addresses in answers begin at the host, where the server is under a path, too."""
        return Call("GET", str(httpx.URL(self.address).join(address)))


class Client(_Connection):
    """A client of a running `happier serve`.

    Args:
        address: of the server, e.g. ``http://127.0.0.1:8000`` or ``https://host/photos``.
        token: where the server requires one.
        retries: how often to try again where the server is busy or its process was replaced.
        transport: of httpx, for tests.

    Every method raises `happier.errors.ServerError` where the server refuses or does not answer.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        retries: int = RETRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(address, token=token, retries=retries)
        self._http = httpx.Client(**self._settings(), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def info(self) -> types.Info:
        """What is served: levels, indexes, limits."""
        return cast(types.Info, self._json(self._send(Call("GET", "/api/info"))))

    def search(
        self,
        image: ImageFile | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the API's word
        upload: str | None = None,
        k: int = 24,
        within: str = "",
        label: str | None = None,
        combine: Combination | None = None,
        side: str = "a",
    ) -> types.SearchOut:
        """Images nearest to an image (a path or a file's bytes), to one of the index, or to an upload.

        Args:
            image: a path, or a file's bytes.
            id: an image of the index instead.
            upload: the key of an upload instead.
            k: how many.
            within: only this branch.
            label: class of the image, where it is known.
            combine: images to search with as well, and images to search away from.
            side: which index, where the server compares several.
        """
        values = {"k": k, "within": within or None, "label": label, "side": side}
        call = search_call(image=image, item=id, upload=upload, combine=combine, values=values)
        return cast(types.SearchOut, self._json(self._send(call)))

    def upload(self, image: ImageFile) -> types.UploadOut:
        """Keep an image for a while, to search with it by its key."""
        return cast(types.UploadOut, self._json(self._send(Call("POST", "/api/uploads", files=[image]))))

    def items(self, within: str = "", *, offset: int = 0, limit: int = 48, side: str = "a") -> types.ItemsOut:
        """Images of a branch."""
        call = items_call(within=within, offset=offset, limit=limit, side=side)
        return cast(types.ItemsOut, self._json(self._send(call)))

    def tree(self, path: str = "", *, side: str = "a") -> types.TreeOut:
        """A class and those right below it."""
        call = Call("GET", "/api/tree", {"path": path or None, "side": side})
        return cast(types.TreeOut, self._json(self._send(call)))

    def picture(self, address: str) -> bytes:
        """A picture as WebP, by an address from an answer (``thumbnail`` or ``image``)."""
        return self._send(self._picture_call(address)).content

    def add_images(
        self, images: Sequence[ImageFile], *, class_path: str = "", ids: Sequence[str] = (), side: str = "a"
    ) -> types.ChangeOut:
        """Add images of one class; needs a token that may write."""
        call = add_call(images, class_path=class_path, ids=ids, side=side)
        return cast(types.ChangeOut, self._json(self._send(call)))

    def delete_images(self, ids: Sequence[str], *, side: str = "a") -> types.ChangeOut:
        """Remove images from the index; needs a token that may write."""
        call = Call("DELETE", "/api/images", {"id": list(ids), "side": side})
        return cast(types.ChangeOut, self._json(self._send(call)))

    def _send(self, call: Call) -> httpx.Response:
        options = call.options()
        for attempt in range(self._retries + 1):
            outcome: httpx.Response | httpx.TransportError
            try:
                outcome = self._http.request(call.method, call.path, **options)
            except httpx.TransportError as error:
                outcome = error
            wait = self._wait(call, outcome, attempt)
            if wait is None:
                break
            time.sleep(wait)
        return self._answer(outcome)


class AsyncClient(_Connection):
    """The same as `Client`, to await."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        retries: int = RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(address, token=token, retries=retries)
        self._http = httpx.AsyncClient(**self._settings(), transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def info(self) -> types.Info:
        """See `Client.info`."""
        return cast(types.Info, self._json(await self._send(Call("GET", "/api/info"))))

    async def search(
        self,
        image: ImageFile | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the API's word
        upload: str | None = None,
        k: int = 24,
        within: str = "",
        label: str | None = None,
        combine: Combination | None = None,
        side: str = "a",
    ) -> types.SearchOut:
        """See `Client.search`."""
        values = {"k": k, "within": within or None, "label": label, "side": side}
        call = search_call(image=image, item=id, upload=upload, combine=combine, values=values)
        return cast(types.SearchOut, self._json(await self._send(call)))

    async def upload(self, image: ImageFile) -> types.UploadOut:
        """See `Client.upload`."""
        return cast(
            types.UploadOut, self._json(await self._send(Call("POST", "/api/uploads", files=[image])))
        )

    async def items(
        self, within: str = "", *, offset: int = 0, limit: int = 48, side: str = "a"
    ) -> types.ItemsOut:
        """See `Client.items`."""
        call = items_call(within=within, offset=offset, limit=limit, side=side)
        return cast(types.ItemsOut, self._json(await self._send(call)))

    async def tree(self, path: str = "", *, side: str = "a") -> types.TreeOut:
        """See `Client.tree`."""
        call = Call("GET", "/api/tree", {"path": path or None, "side": side})
        return cast(types.TreeOut, self._json(await self._send(call)))

    async def picture(self, address: str) -> bytes:
        """See `Client.picture`."""
        return (await self._send(self._picture_call(address))).content

    async def add_images(
        self, images: Sequence[ImageFile], *, class_path: str = "", ids: Sequence[str] = (), side: str = "a"
    ) -> types.ChangeOut:
        """See `Client.add_images`."""
        call = add_call(images, class_path=class_path, ids=ids, side=side)
        return cast(types.ChangeOut, self._json(await self._send(call)))

    async def delete_images(self, ids: Sequence[str], *, side: str = "a") -> types.ChangeOut:
        """See `Client.delete_images`."""
        call = Call("DELETE", "/api/images", {"id": list(ids), "side": side})
        return cast(types.ChangeOut, self._json(await self._send(call)))

    async def _send(self, call: Call) -> httpx.Response:
        options = call.options()
        for attempt in range(self._retries + 1):
            outcome: httpx.Response | httpx.TransportError
            try:
                outcome = await self._http.request(call.method, call.path, **options)
            except httpx.TransportError as error:
                outcome = error
            wait = self._wait(call, outcome, attempt)
            if wait is None:
                break
            await asyncio.sleep(wait)
        return self._answer(outcome)
