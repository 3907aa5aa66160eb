"""Watch the indexes, and show their newest state."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from happier.errors import HappierError
from happier.web.explorer import Explorer
from happier.web.metrics import ServerMetrics

log = logging.getLogger("happier.web")


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
