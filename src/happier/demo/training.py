"""Training runs in parallel processes, each with its share of the cores."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from happier.errors import TrainingError
from happier.runs import RunDirectory

# The process keeps freed memory instead of returning it to the system at every step.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**31), "MALLOC_TRIM_THRESHOLD_": str(2**33)}
_POLL_SECONDS = 0.5

Handler = Callable[[int, FrameType | None], Any] | int | None


@dataclass(frozen=True)
class Job:
    """One run to train.

    Attributes:
        name: for messages.
        directory: of the run.
        overrides: of ``happier train``.
        steps: of the whole run.
    """

    name: str
    directory: Path
    overrides: tuple[str, ...]
    steps: int

    @property
    def run(self) -> RunDirectory:
        """Where the run's files are."""
        return RunDirectory(self.directory)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to train."""
        return self.run.has_model

    def steps_done(self) -> int:
        """Steps that the run has logged by now."""
        if self.is_done:
            return self.steps
        try:
            with self.run.metrics_file.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().splitlines()
        except OSError:
            return 0
        for line in reversed(lines):
            with contextlib.suppress(ValueError):  # a line that is still being written
                return min(self.steps, int(json.loads(line).get("step", 0)))
        return 0


def train_together(jobs: Sequence[Job], tell: Callable[[int], None], *, log_folder: Path) -> None:
    """Train all jobs that are not done, as many at a time as there are cores; the others wait for their turn.

    When this process is interrupted, the jobs save their state and end; the next call continues.

    Args:
        jobs: what to train.
        tell: called repeatedly with the steps done in all jobs.
        log_folder: where each job's output goes.

    Raises:
        TrainingError: a job failed; the message is its last line.
    """
    waiting = [job for job in jobs if not job.is_done]
    cores = usable_cores()
    threads = iter(threads_of_each(len(waiting), cores))
    running: list[tuple[Job, subprocess.Popen[bytes]]] = []
    before = _on_sigterm(_interrupt)
    try:
        while waiting or running:
            while waiting and len(running) < cores:
                job = waiting.pop(0)
                running.append((job, _start(job, next(threads), log_folder)))
            time.sleep(_POLL_SECONDS)
            tell(sum(job.steps_done() for job in jobs))
            for job, process in list(running):
                if process.poll() is not None:
                    running.remove((job, process))
                    if process.returncode != 0:
                        raise TrainingError(f"training {job.name} failed: {_last_line(job, log_folder)}")
    finally:
        for _, process in running:
            process.terminate()
        for _, process in running:
            process.wait()
        _on_sigterm(before)


def threads_of_each(jobs: int, cores: int) -> list[int]:
    """Threads of jobs of about the same length, in the order they start.

    They run in waves of one job per core; where the last wave is small, each of its jobs gets more.

    >>> threads_of_each(3, 2)
    [1, 1, 2]
    >>> threads_of_each(3, 8)
    [2, 2, 2]
    """
    last = jobs % cores or min(jobs, cores)
    return [1] * (jobs - last) + [cores // last] * last if jobs else []


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Treat SIGTERM as Ctrl-C: otherwise the jobs would keep running on their own."""
    del number, frame
    raise KeyboardInterrupt


def _on_sigterm(handler: Handler) -> Handler:
    """Set the handler of SIGTERM and return the previous one; only the main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, handler if handler is not None else signal.SIG_DFL)


def training_environment(threads: int) -> dict[str, str]:
    """Environment variables for a process that trains in parallel with others."""
    return {
        **_KEEP_MEMORY,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
    }


def _start(job: Job, threads: int, log_folder: Path) -> subprocess.Popen[bytes]:
    log_folder.mkdir(parents=True, exist_ok=True)
    with _log_file(job, log_folder).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "happier", "train", *job.overrides],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **training_environment(threads)},
            # Only this process receives Ctrl-C; it passes it on as SIGTERM, once.
            start_new_session=True,
        )


def _log_file(job: Job, folder: Path) -> Path:
    return folder / f"{job.directory.name}.log"


def _last_line(job: Job, folder: Path) -> str:
    text = _log_file(job, folder).read_text(encoding="utf-8", errors="replace").strip()
    return text.splitlines()[-1].removeprefix("happier: ") if text else "it ended without a message"


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
