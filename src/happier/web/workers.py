"""Threads for everything that computes, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastapi import Response
from pydantic import BaseModel

from happier.web.explorer import Explorer

# How long shutdown waits for a step of the analysis.
ANALYSIS_SECONDS = 5.0
Result = TypeVar("Result")


class Workers:
    """A few threads for requests, and one for the analysis."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="happier-web")
        self._analysing: threading.Thread | None = None
        self._stop = threading.Event()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run a call in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def answer(self, work: Callable[[], BaseModel], *, status: int = 200) -> Response:
        """Compute an answer and write it as JSON in a thread; an undefined number becomes null."""
        text = await self.run(lambda: work().model_dump_json())
        return Response(text, status_code=status, media_type="application/json")

    def start_analysis(self, explorer: Explorer) -> bool:
        """Start the analysis of all models if it has not started; returns whether it is done."""
        models = explorer.models.values()
        if self._analysing is None:
            # Takes long for a large index: neither a search nor shutdown may wait for it.
            self._analysing = threading.Thread(
                target=lambda: [model.analysis(self._stop) for model in models], name="happier-analysis"
            )
            self._analysing.start()
        return all(model.analysed for model in models)

    def close(self) -> None:
        """Finish running work, drop queued work."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._analysing is not None:
            # It checks `_stop` about every second, and must not outlive the interpreter.
            self._analysing.join(ANALYSIS_SECONDS)
