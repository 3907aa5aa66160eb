"""Watch the indexes, show their newest state, and know when every process does."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import NoReturn

from happier.errors import HappierError
from happier.search.index import Index
from happier.web.explorer import Explorer
from happier.web.metrics import ServerMetrics

log = logging.getLogger("happier.web")
GENERATION = "happier_index_generation_{}"
# A process that is being replaced takes a few seconds to start.
_SHOWN_SECONDS = 10.0
_POLL_SECONDS = 0.01


async def watch(explorer: Explorer, seconds: float, metrics: ServerMetrics) -> NoReturn:
    """Look every few seconds whether an index changed; a state that cannot be opened is not shown."""
    said = ""
    while True:
        metrics.update()
        await asyncio.sleep(seconds)
        try:
            # A thread of its own: it must not take the place of a request.
            if await asyncio.to_thread(explorer.refresh):
                versions = ", ".join(f"{one.name} {one.version}" for one in explorer.models.values())
                log.info("showing %s", versions)
            said = ""
        # Whatever it is, it may pass; a server that stops watching would show an old state for good.
        except Exception as error:
            if str(error) != said:
                expected = isinstance(error, HappierError)
                log.warning("the state of the index before stays open: %s", error, exc_info=not expected)
            said = str(error)


async def shown_everywhere(explorer: Explorer, key: str, index: Index, metrics: ServerMetrics) -> None:
    """Wait until all processes show a state of an index, or a later one; not long for one that hangs."""
    gauge, end = GENERATION.format(key), time.monotonic() + _SHOWN_SECONDS
    while metrics.lowest(gauge) < index.head.generation and time.monotonic() < end:
        if explorer.model(key).index.head.uid != index.head.uid:
            return  # another index has taken its place
        await asyncio.sleep(_POLL_SECONDS)
