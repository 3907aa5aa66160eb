"""Threads for everything that computes, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from fastapi import Response
from pydantic import BaseModel

from happier.errors import EngineUnavailableError, SearchError
from happier.web.explorer import Explorer
from happier.web.indexed_model import IndexedModel

# How long shutdown waits for a step of the analysis.
ANALYSIS_SECONDS = 5.0
Result = TypeVar("Result")


class Workers:
    """A few threads for requests, one for the analysis and one for maps.

    Args:
        count: threads for requests.
        refresh: opens the newest state of the indexes.
    """

    def __init__(self, count: int, *, refresh: Callable[[], object] = lambda: None) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="happier-web")
        self._refresh = refresh
        self._analysing: threading.Thread | None = None
        self._mapping: threading.Thread | None = None
        self._map_stop = threading.Event()
        self._models: list[IndexedModel] = []
        self._closed = False
        self._starting = threading.Lock()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run a call in a thread.

        What is not found may be in a state of the index that another process has opened already: then look
        there.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, work)

    def _run(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except EngineUnavailableError:
            raise  # it was asked again already
        except SearchError:
            with suppress(SearchError):
                self._refresh()
            return work()  # whoever has opened the newest state: it may have been another thread

    @property
    def queued(self) -> int:
        """Calls that wait for a thread."""
        return self._pool._work_queue.qsize()

    async def answer(self, work: Callable[[], BaseModel], *, status: int = 200) -> Response:
        """Compute an answer and write it as JSON in a thread; an undefined number becomes null."""
        text = await self.run(lambda: work().model_dump_json())
        return Response(text, status_code=status, media_type="application/json")

    def start_analysis(self, explorer: Explorer) -> bool:
        """Start the analysis of all models if it has not started; returns whether it is done."""
        models = list(explorer.models.values())
        ready = explorer.analysed
        if not ready and not self._closed and (self._analysing is None or not self._analysing.is_alive()):
            # Takes long for a large index: neither a search nor shutdown may wait for it.
            self._models = models
            self._analysing = threading.Thread(
                target=lambda: [model.analysis() for model in models], name="happier-analysis"
            )
            self._analysing.start()
        return ready

    def start_map(self, model: IndexedModel) -> bool:
        """Start to lay out a model's map if nothing else is being laid out; returns whether it is there."""
        if model.map.read():
            return True
        with self._starting:
            if not self._closed and (self._mapping is None or not self._mapping.is_alive()):
                self._map_stop = model.stop  # not the model: it may be replaced, and its memory must return
                self._mapping = threading.Thread(target=model.map.positions, name="happier-map")
                self._mapping.start()
        return False

    def close(self) -> None:
        """Finish running work, drop queued work."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = [one for one in (self._analysing, self._mapping) if one is not None and one.is_alive()]
        if running:
            stops = [*(model.stop for model in self._models), self._map_stop]
            for stop in stops:
                stop.set()
            # They check `stop` about every second, and must not outlive the interpreter.
            for thread in running:
                thread.join(ANALYSIS_SECONDS)
            for stop in stops:
                stop.clear()  # another server may show the same explorer
