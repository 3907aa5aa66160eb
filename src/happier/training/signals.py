"""SIGTERM and SIGINT as notes to be read between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["noted_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def noted_signals() -> Iterator[list[str]]:
    """Give a list that the names of signals are put into; a second Ctrl-C stops at once.

    Only the main thread may handle signals: elsewhere they act as ever.
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
