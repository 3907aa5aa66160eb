"""A server that does not answer is asked again, at growing intervals, for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")
_FIRST_PAUSE = 0.25


def ask_again(
    ask: Callable[[], Answer], *, unreachable: Callable[[Exception], bool], seconds: float
) -> Answer:
    """What a server answers.

    Args:
        ask: the call; it may be made several times.
        unreachable: whether an error means that the server was not reached, so that it may answer later.
        seconds: how long to go on asking. Any other error, or the last one, is raised.
    """
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while True:
        try:
            return ask()
        except Exception as error:
            if not unreachable(error) or time.monotonic() + pause >= end:
                raise
        time.sleep(pause)
        pause *= 2
