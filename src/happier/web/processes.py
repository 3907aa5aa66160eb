"""Several processes that serve the same indexes on one address; one that dies is replaced."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import FrameType

from happier.errors import OptionError, SearchError
from happier.search.store import IndexStore
from happier.storage.atomic import scratch_folder
from happier.web.access import Access
from happier.web.limits import Limits
from happier.web.metrics import ServerMetrics
from happier.web.server import (
    SHUTDOWN_SECONDS,
    ExplorerServer,
    ListeningAddress,
    freeze_loaded_code,
    open_explorer,
    warn_of_unreadable_images,
)

log = logging.getLogger("happier.web")
# A process that fails sooner than this did not start at all.
_STARTED_SECONDS = 60.0
_MAX_FAILURES = 5
_METRICS_FILE = "metrics.f64"


@dataclass(frozen=True)
class ServedIndexes:
    """What each process opens; see `Explorer`.

    Raises:
        SearchError: not an index.
        OptionError: an index that several processes cannot open.
    """

    index: Path
    against: tuple[Path, ...] = ()
    images: tuple[Path, ...] = ()
    corrections: Path | None = None
    writes: Path | None = None
    root_path: str = ""

    def __post_init__(self) -> None:
        """What is wrong with an index should be said once, before anything starts."""
        for directory in (self.index, *self.against):
            head = IndexStore(directory).head()
            if head.engine == "milvus" and "://" not in str(head.settings.get("uri", "")):
                raise OptionError(f"{directory} is on milvus-lite, which serves one process: omit --workers")


@dataclass(frozen=True)
class _Task:
    """What a process is started with."""

    served: ServedIndexes
    access: Access
    limits: Limits
    listening: ListeningAddress
    folder: Path
    processes: int
    log_level: int = field(default_factory=lambda: logging.getLogger("happier.access").level)


class ProcessGroup:
    """Processes that share an address, uploads and counters.

    The vector files are mapped, so the processes share them in memory. Uploads are shared as small copies and
    vectors in a folder that only this user can read: in memory (``/dev/shm``) where the system has that. It
    is removed at the end.

    Args:
        served: what they open.
        listening: their address.
        access: who may use them.
        limits: of each process.
        count: how many.
    """

    def __init__(
        self,
        served: ServedIndexes,
        listening: ListeningAddress,
        *,
        access: Access,
        limits: Limits | None = None,
        count: int,
    ) -> None:
        self._served, self._listening, self._access = served, listening, access
        self._limits, self._count = limits or Limits(), count
        # A server that has loaded the code and nothing else forks them: a new one is there at once.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, "happier.encoder.vector_models"])
        self._running: dict[int, ForkServerProcess] = {}
        self._stopping = False

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM; SIGHUP makes each process read tokens, certificate and index again.

        Raises:
            SearchError: the processes end as soon as they are started.
        """
        freeze_loaded_code()
        with shared_folder() as folder:
            ServerMetrics.create(folder / _METRICS_FILE, self._count)
            task = _Task(self._served, self._access, self._limits, self._listening, folder, self._count)
            with self._signals():
                try:
                    self._keep_running(task)
                finally:
                    self._stop()

    @property
    def pids(self) -> list[int]:
        """Of the processes that run."""
        return [one.pid for one in self._running.values() if one.pid is not None]

    def _keep_running(self, task: _Task) -> None:
        began: dict[int, float] = {}
        failures = 0
        while not self._stopping:
            for slot in set(range(self._count)) - set(self._running):
                process = self._context.Process(
                    target=_serve, args=(task, slot), name=f"happier-serve-{slot}"
                )
                process.start()
                self._running[slot], began[slot] = process, time.monotonic()
            wait([one.sentinel for one in self._running.values()], timeout=0.5)
            for slot, process in list(self._running.items()):
                if process.is_alive() or self._stopping:
                    continue
                del self._running[slot]
                # One that was killed says nothing about the next one.
                failed = time.monotonic() - began[slot] < _STARTED_SECONDS and (process.exitcode or 0) > 0
                failures = failures + 1 if failed else 0
                log.warning(
                    "process %s ended (%s); another one takes its place", process.pid, process.exitcode
                )
                if failures >= _MAX_FAILURES:
                    raise SearchError(
                        f"the server's processes end as soon as they start ({task.served.index})"
                    )

    def _stop(self) -> None:
        self._stopping = True
        for process in self._running.values():
            process.terminate()
        end = time.monotonic() + SHUTDOWN_SECONDS + 5
        for process in self._running.values():
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def end(*_: object) -> None:
            self._stopping = True

        def forward(number: int, _: FrameType | None) -> None:
            for pid in self.pids:
                os.kill(pid, number)

        before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, forward)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder for this user only, in memory where the system has such a place; gone at the end."""
    memory = Path("/dev/shm")  # noqa: S108
    base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    with scratch_folder(base / f"happier-serve-{os.getuid()}") as folder:
        folder.chmod(0o700)
        yield folder


def _serve(task: _Task, slot: int) -> None:
    """One process: open the indexes, serve."""
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // task.processes))
    log_requests(task.log_level)
    freeze_loaded_code()
    served = task.served
    explorer = open_explorer(
        served.index,
        served.against,
        images=served.images,
        corrections=served.corrections,
        uploads=task.folder,
        writes=served.writes,
        root_path=served.root_path,
    )
    if slot == 0:  # once is enough
        warn_of_unreadable_images(explorer)
    metrics = ServerMetrics(processes=task.processes, slot=slot, file=task.folder / _METRICS_FILE)
    ExplorerServer(
        explorer, access=task.access, limits=task.limits, listening=task.listening, metrics=metrics
    ).run()


def log_requests(level: int = logging.INFO) -> None:
    """Write the access log to the standard error output, one JSON object for each request."""
    access_log = logging.getLogger("happier.access")
    if level and not access_log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        access_log.addHandler(handler)
        access_log.setLevel(level)
        access_log.propagate = False
