"""Defer SIGTERM and SIGINT to the end of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["deferred_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def deferred_signals() -> Iterator[list[str]]:
    """Collect the names of received signals in a list; a second Ctrl-C stops at once.

    Only the main thread may handle signals: in other threads nothing changes.
    """
    received: list[str] = []

    def note(number: int, _: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
