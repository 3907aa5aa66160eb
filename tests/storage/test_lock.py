"""One writer at a time, across threads, forks and processes."""

import logging
import os
import subprocess
import sys
import threading
import time

import pytest
from processes import Gate, exit_code, fork, kill_self

from happier.errors import BusyError, DataError
from happier.storage.lock import LOCK_FILE, locked, locked_file

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def add_one(counter):
    """Read, wait, write: two at once lose a step."""
    number = int(counter.read_text())
    time.sleep(0.001)
    counter.write_text(str(number + 1))


def test_threads_and_processes_take_turns(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count():
        for _ in range(20):
            with locked(tmp_path):
                add_one(counter)

    def count_in_threads():
        threads = [threading.Thread(target=count) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    children = [fork(count_in_threads) for _ in range(3)]
    count()
    assert [exit_code(child) for child in children] == [0] * 3
    assert counter.read_text() == "200"


def test_a_thread_may_take_it_again(tmp_path):
    with locked(tmp_path), locked(tmp_path, wait=False), locked(tmp_path / ".." / tmp_path.name, wait=False):
        pass
    with locked(tmp_path, wait=False):
        pass


def test_who_waits_says_for_whom(tmp_path, caplog):
    holding, finish = Gate(), Gate()

    def hold():
        with locked(tmp_path):
            holding.open()
            finish.wait()

    child = fork(hold)
    holding.wait()
    with pytest.raises(BusyError, match=f"is being changed by process {child} on .*; try again when"):  # noqa: SIM117
        with locked(tmp_path, wait=False):
            pytest.fail("the lock is held")
    threading.Timer(0.2, finish.open).start()
    with caplog.at_level(logging.WARNING), locked(tmp_path):
        assert f"waiting for process {child} on " in caplog.text
        assert (tmp_path / LOCK_FILE).read_text().startswith(f"process {os.getpid()} on ")
    assert exit_code(child) == 0


def test_another_thread_waits_or_is_refused(tmp_path, caplog):
    outcome, started = [], threading.Event()

    def refuse():
        try:
            with locked(tmp_path, wait=False):
                outcome.append("held")
        except BusyError as error:
            outcome.append(str(error))

    def wait():
        started.set()
        with locked(tmp_path):
            outcome.append("waited")

    with locked(tmp_path):
        thread = threading.Thread(target=refuse)
        thread.start()
        thread.join()
        waiting = threading.Thread(target=wait)
        waiting.start()
        started.wait()
        outcome.append("released")
    waiting.join()
    assert outcome == [f"{tmp_path} is being changed by another thread of this process", "released", "waited"]


def test_a_dead_owner_holds_nothing(tmp_path):
    def hold_and_die():
        with locked(tmp_path):
            kill_self()

    assert exit_code(fork(hold_and_die)) == -9
    with locked(tmp_path, wait=False):
        pass


def test_a_fork_holds_none_of_its_parents_locks(tmp_path):
    def try_it():
        with pytest.raises(BusyError), locked(tmp_path, wait=False):
            pass

    with locked(tmp_path):
        assert exit_code(fork(try_it)) == 0
        # Nor does one that leaves the block by itself take the lock from its parent.
        child = os.fork()
        if child:
            assert exit_code(child) == 0
            assert exit_code(fork(try_it)) == 0
    if child == 0:
        os._exit(0)
    with locked(tmp_path, wait=False):
        pass


def test_a_fork_that_outlives_the_holder_does_not_keep_the_lock(tmp_path):
    """As the workers of a data loader do when their trainer is killed."""
    ready, finish = Gate(), Gate()

    def hold_fork_and_die():
        with locked(tmp_path):
            fork(finish.wait)
            kill_self()

    assert exit_code(fork(hold_fork_and_die)) == -9
    with locked(tmp_path, wait=False):
        ready.open()
    finish.open()


def test_a_fork_while_another_thread_takes_a_lock(tmp_path):
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            with locked(tmp_path / "busy"):
                pass

    def use():
        with locked(tmp_path / "own"):
            pass

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert [exit_code(fork(use)) for _ in range(10)] == [0] * 10
    finally:
        stop.set()
        thread.join()


def test_a_process_that_is_started_does_not_inherit_it(tmp_path):
    with locked(tmp_path):
        sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with locked(tmp_path, wait=False):
        pass
    sleeper.communicate(b"\n")


def test_an_error_or_interrupt_gives_it_back(tmp_path):
    for error in (KeyError, KeyboardInterrupt):
        with pytest.raises(error), locked(tmp_path):
            raise error

    def try_it():
        with locked(tmp_path, wait=False):
            pass

    assert exit_code(fork(try_it)) == 0


def test_a_place_that_cannot_hold_a_lock(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Not a directory"), locked(tmp_path / "file"):
        pytest.fail("the block must not run")
    (tmp_path / "d" / LOCK_FILE).mkdir(parents=True)
    with pytest.raises(DataError, match="Is a directory"), locked(tmp_path / "d"):
        pytest.fail("the block must not run")
    # After a failure nothing is held.
    (tmp_path / "d" / LOCK_FILE).rmdir()
    with locked(tmp_path / "d", wait=False):
        pass


def test_a_lock_file_with_anything_in_it(tmp_path):
    (tmp_path / LOCK_FILE).write_bytes(bytes(range(256)) * 100)
    with locked(tmp_path, wait=False):
        pass


def test_a_folder_that_is_removed_while_it_is_locked(tmp_path):
    with locked(tmp_path / "d"):
        (tmp_path / "d" / LOCK_FILE).unlink()
        (tmp_path / "d").rmdir()
    with locked(tmp_path / "d", wait=False):
        assert (tmp_path / "d" / LOCK_FILE).exists()


def test_a_file_has_a_lock_of_its_own(tmp_path):
    """Also by another name, and beside the lock of its folder."""
    file, link = tmp_path / "table.csv", tmp_path / "link.csv"
    file.write_text("")
    link.symlink_to(file)
    entered, leave = Gate(), Gate()

    def hold():
        with locked_file(file):
            entered.open()
            leave.wait()

    child = fork(hold)
    entered.wait()
    with locked(tmp_path, wait=False):
        pass
    done = threading.Event()

    def change():
        with locked_file(link):
            done.set()

    thread = threading.Thread(target=change)
    thread.start()
    assert not done.wait(0.3)
    leave.open()
    thread.join()
    assert done.is_set()
    assert exit_code(child) == 0
    assert sorted(path.name for path in tmp_path.glob(".*lock")) == [".lock", ".table.csv.lock"]
