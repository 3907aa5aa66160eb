"""The path that a server is reached under, such as ``/photos``."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class RootPathMiddleware:
    """Takes the path off a request's address; a proxy that has done so already is fine, too.

    Args:
        app: sees addresses that begin at ``/``.
        root_path: the path, without a slash at its end.
    """

    def __init__(self, app: ASGIApp, *, root_path: str) -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on under its own path."""
        path = scope.get("path", "")
        if path == self._root_path:  # the page's addresses are relative to the folder
            return await RedirectResponse(f"{self._root_path}/", 307)(scope, receive, send)
        if path.startswith(f"{self._root_path}/"):
            raw = scope.get("raw_path")
            if raw is not None:
                raw = raw.removeprefix(self._root_path.encode())
            scope = {**scope, "path": path.removeprefix(self._root_path), "raw_path": raw}
        return await self._app(scope, receive, send)
