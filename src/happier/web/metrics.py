"""What the server counts, for `Prometheus <https://prometheus.io>`_: requests, durations, queues, memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

# Upper bounds of the histogram's buckets, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
STATUSES = ("2xx", "3xx", "4xx", "429", "5xx")
OTHER = "other"
# Numbers that a process may write; what is used depends on the routes.
ROW = 4096
_COUNTS = len(STATUSES) + len(BUCKETS) + 2  # and the buckets' end and sum
_UNDER_WAY = "happier_requests_under_way"
Gauges = Mapping[str, Callable[[], float]]


class ServerMetrics:
    """Counters of all processes that serve the same indexes: each writes a row of one table, all are read.

    A process that is replaced goes on in its predecessor's row, so that no counter ever falls.

    Args:
        processes: number of rows.
        slot: the row of this process.
        file: that the processes share; None where there is one process.
    """

    def __init__(self, *, processes: int = 1, slot: int = 0, file: Path | None = None) -> None:
        self._rows: npt.NDArray[np.float64] = (
            np.zeros((processes, ROW))
            if file is None
            else np.memmap(file, np.float64, "r+", shape=(processes, ROW)).view(np.ndarray)
        )
        self._mine = self._rows[slot]
        self._kinds: dict[str, int] = {OTHER: 0}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._under_way = 0

    @staticmethod
    def create(file: Path, processes: int) -> None:
        """Make the file that processes share."""
        np.zeros((processes, ROW)).tofile(file)

    def describe(self, paths: Iterable[str], gauges: Gauges) -> None:
        """Say what is served: the same in each process.

        Args:
            paths: of the routes; requests are counted by their first part below ``/api``.
            gauges: functions that return a process's present values, by the names of Prometheus.
        """
        kinds = [OTHER, *sorted({_kind(path) for path in paths} - {OTHER})]
        self._kinds = {kind: number for number, kind in enumerate(kinds)}
        self._gauges = {_UNDER_WAY: lambda: self._under_way, "happier_memory_bytes": _memory, **gauges}
        assert self._first_gauge + len(self._gauges) <= ROW

    @property
    def _first_gauge(self) -> int:
        return _COUNTS * len(self._kinds)

    def begin(self) -> None:
        """Count a request under way."""
        self._under_way += 1

    def end(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._under_way -= 1
        start = _COUNTS * self._kinds.get(_kind(path), 0)
        self._mine[start + STATUSES.index("429" if status == 429 else f"{min(status // 100, 5)}xx")] += 1
        bucket = bisect_left(BUCKETS, seconds)
        self._mine[start + len(STATUSES) + bucket] += 1
        self._mine[start + _COUNTS - 1] += seconds

    def count_refused_connection(self) -> None:
        """Count a connection that was answered with 429 before a request was read."""
        self.begin()
        self.end("", 429, 0.0)

    def update(self) -> None:
        """Write the present values of the gauges."""
        for number, value in enumerate(self._gauges.values(), start=self._first_gauge):
            self._mine[number] = value()

    def lowest(self, gauge: str) -> float:
        """The lowest value of a gauge that a process has written."""
        self.update()
        return float(self._rows[:, self._first_gauge + list(self._gauges).index(gauge)].min())

    def text(self) -> str:
        """All of it in Prometheus' text format."""
        self.update()
        total = self._rows.sum(axis=0)
        requests, seconds = [], []
        for kind, number in self._kinds.items():
            counts = total[_COUNTS * number : _COUNTS * (number + 1)]
            for status, count in zip(STATUSES, counts, strict=False):
                requests.append(f'happier_requests_total{{route="{kind}",status="{status}"}} {count:.0f}')
            below = np.cumsum(counts[len(STATUSES) : -1])
            for bound, count in zip([*map(str, BUCKETS), "+Inf"], below, strict=True):
                seconds.append(f'happier_request_seconds_bucket{{route="{kind}",le="{bound}"}} {count:.0f}')
            seconds.append(f'happier_request_seconds_sum{{route="{kind}"}} {counts[-1]:.6f}')
            seconds.append(f'happier_request_seconds_count{{route="{kind}"}} {below[-1]:.0f}')
        lines = ["# TYPE happier_requests_total counter", *requests]
        lines += ["# TYPE happier_request_seconds histogram", *seconds]
        for number, name in enumerate(self._gauges, start=self._first_gauge):
            lines.append(f"# TYPE {name} gauge")
            lines += [
                f'{name}{{process="{slot}"}} {value:.15g}' for slot, value in enumerate(self._rows[:, number])
            ]
        return "\n".join(lines) + "\n"


def _kind(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"]:
        parts = parts[1:]
    return parts[0] if parts else OTHER


def _memory() -> float:
    return float(psutil.Process().memory_info().rss)
