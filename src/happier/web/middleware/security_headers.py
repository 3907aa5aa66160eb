"""Headers that every response has, refusals included."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send


def content_policy(scripts: Sequence[str] = (), styles: Sequence[str] = ()) -> str:
    """What a page may load: nothing from another origin, and in itself these scripts and styles only."""

    def own(texts: Sequence[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return " ".join(["'self'", *(f"'sha256-{digest}'" for digest in digests)])

    # blob: is the preview of a chosen image.
    return (
        f"default-src 'none'; script-src {own(scripts)}; style-src {own(styles)}; img-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", content_policy().encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class SecurityHeadersMiddleware:
    """Adds the security headers; lets HTTP requests and the lifespan through, nothing else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the headers added."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message.get("headers", ())}
                extra = [pair for pair in HEADERS if pair[0] not in present]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        await self._app(scope, receive, send_with_headers)
