"""HTTP with bounds: for headers that do not arrive or do not end, and for answers that are not read."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from happier.web.limits import Limits
from happier.web.metrics import ServerMetrics

HEADER_SECONDS = 10.0
HEADER_BYTES = 64 << 10
_REASON = b'{"detail": "too many open connections from this address"}'
_TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_REASON), _REASON)
)
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimeoutProtocol(HttpToolsProtocol):
    """Closes connections whose headers do not arrive in time or are too long, or whose client does not read.

    The number of open connections per client is limited; further ones are answered with 429.
    """

    limits = Limits()
    metrics: ServerMetrics
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _in_headers = True
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the headers."""
        super().connection_made(transport)
        clients = [getattr(one, "client", None) for one in self.connections]
        same = sum(client is not None and client[:1] == (self.client or ())[:1] for client in clients)
        if same > self.limits.client_connections:
            transport.write(_TOO_MANY)
            transport.close()
            self.metrics.count_refused_connection()
            return
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)

    def data_received(self, data: bytes) -> None:
        """Wait for the headers of the next request on the same connection."""
        if self.transport.is_closing():
            return
        between_requests = self.cycle is None or self.cycle.response_complete
        if between_requests and self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > HEADER_BYTES:
            self.transport.write(_TOO_LONG)
            self.transport.close()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_header_timer()

    def on_headers_complete(self) -> None:
        """What follows is the body."""
        self._in_headers, self._header_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """What follows are the headers of the next request."""
        self._in_headers = True
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not keep up: give it some time."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop_write_timer()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """The end of an answer must be read in time too."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._start_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_header_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_are_late(self) -> None:
        self._header_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _start_write_timer(self) -> None:
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.limits.write_seconds, self._answer_is_unread)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _answer_is_unread(self) -> None:
        self._write_timer = None
        if self.transport.get_write_buffer_size():
            if self.cycle is not None:
                self.cycle.disconnected = True  # it must not write any more
            self.transport.abort()  # `close` would wait for the client to read the rest


def protocol_for(limits: Limits, metrics: ServerMetrics) -> type[TimeoutProtocol]:
    """The protocol class with these limits, which counts in these metrics."""
    return type("LimitedTimeoutProtocol", (TimeoutProtocol,), {"limits": limits, "metrics": metrics})
