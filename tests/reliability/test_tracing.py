"""The tools themselves: a snapshot is what a kill leaves, and faults that are put in are found."""

import errno
import os
from pathlib import Path

import pytest
from reliability.box import Box, Outcome
from reliability.damage import damages
from reliability.tracing import supported, trace

REASON = supported()
pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def write_twice(folder):
    with (folder / "a").open("wb", buffering=0) as file:
        file.write(b"one")
        file.write(b"two")
        os.fsync(file.fileno())
    (folder / "a").rename(folder / "b")
    (folder / "sub").mkdir()
    os.truncate(folder / "b", 2)
    (folder / "b").unlink()


def test_every_change_is_seen_and_nothing_else(tmp_path):
    seen = []
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()

    def work():
        (tmp_path / "elsewhere" / "x").write_text("not counted")
        write_twice(tmp_path / "here")
        list((tmp_path / "here").iterdir())

    assert trace(work, tmp_path / "here", seen.append) == 0
    assert [call.name for call in seen] == [
        "openat",
        "write",
        "write",
        "fsync",
        "rename",
        "mkdir",
        "truncate",
        "unlink",
    ]
    assert [call.number for call in seen] == list(range(1, 9))
    assert Path(seen[4].path).name == "a"


def test_a_snapshot_is_what_a_kill_leaves(tmp_path):
    box = Box(tmp_path)
    taken = []
    assert trace(lambda: write_twice(box.path), box.path, lambda call: taken.append(box.take())) == 0
    empty = box.take()
    for number, snapshot in enumerate(taken, start=1):
        for left in box.path.iterdir():
            left.rmdir()
        code = trace(
            lambda: write_twice(box.path),
            box.path,
            lambda call, number=number: "kill" if call.number == number else None,
        )
        assert code == -9
        assert box.take().content == snapshot.content
        box.put(snapshot)
        assert box.take().content == snapshot.content
        box.put(empty)


def test_threads_and_children_are_stopped_too(tmp_path):
    import threading

    seen = []

    def work():
        thread = threading.Thread(target=(tmp_path / "thread").touch)
        thread.start()
        thread.join()
        os.system(f"echo x > {tmp_path}/child")

    assert trace(work, tmp_path, seen.append) == 0
    assert [(call.name, Path(call.path).name) for call in seen] == [
        ("openat", "thread"),
        ("openat", "child"),
        ("write", "child"),
    ]


def test_a_call_can_be_made_to_fail(tmp_path):
    def work():
        with pytest.raises(OSError, match="No space left") as caught:
            (tmp_path / "x").mkdir()
        assert caught.value.errno == errno.ENOSPC
        (tmp_path / "y").mkdir()

    fail = lambda call: errno.ENOSPC if call.path.endswith("/x") else None  # noqa: E731
    assert trace(work, tmp_path, fail) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["y"]


def test_the_exit_code_comes_through(tmp_path):
    def stop():
        raise SystemExit(3)

    assert trace(stop, tmp_path, lambda call: None) == 3


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (Outcome(0, "", ""), ""),
        (Outcome(2, "", "a warning\nhappier: no\n"), ""),
        (Outcome(1, "", "Traceback (most recent call last):\nKeyError: 1\n"), "traceback"),
        (Outcome(2, "", "Usage: ...\n"), "exit code 2"),
        (Outcome(-7, "", ""), "signal 7"),
        (Outcome(1, "", "x"), "exit code 1"),
    ],
)
def test_what_counts_as_a_fault(outcome, fault):
    assert fault in outcome.fault if fault else outcome.fault == ""


def test_every_damage_changes_the_file(tmp_path):
    path = tmp_path / "x"
    for what, apply in damages(100, 20):
        path.write_bytes(bytes(range(100)))
        apply(path)
        assert not path.is_file() or path.read_bytes() != bytes(range(100)), what
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
