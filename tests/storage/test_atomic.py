"""Files and folders appear whole or not at all, and what killed writers left is removed."""

import errno
import os
import stat
import subprocess
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from processes import Gate, exit_code, fork, kill_self, run_command

from happier.errors import CheckpointError, DataError, HappierError
from happier.storage import atomic
from happier.storage.atomic import (
    LOCK_FILE,
    atomic_file,
    atomic_folder,
    remove_leftovers,
    reserve,
    scratch_folder,
    sync,
)
from happier.storage.disk_errors import disk_errors
from happier.storage.lock import locked

# pytest's own threads make every fork of Python 3.12 and later warn; these forks run no code of theirs.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
ROOT = os.geteuid() == 0


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def write_folder(path, text, *, replace=True):
    with atomic_folder(path, replace=replace) as part:
        (part / "a").write_text(text)


# Files


def test_a_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "deep" / "er" / "x.npy"
    with atomic_file(path) as part:
        assert part.name == "x.npy"  # writers that look at the name find what they expect
        np.save(part, np.arange(3))
        assert not path.exists()
    assert np.load(path).tolist() == [0, 1, 2]
    assert names(path.parent) == ["x.npy"]


def test_an_error_in_the_block_keeps_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_file(path) as part:
        part.write_text("new")
        raise KeyError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x"]


def test_a_file_is_as_readable_as_any_other(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "x") as part:
            part.write_text("")
        with atomic_folder(tmp_path / "f") as folder:
            (folder / "y").write_text("")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o750


def test_other_threads_keep_their_umask(tmp_path):
    """The umask belongs to the process: to change it for a moment is to change it for every thread."""
    before = os.umask(0o077)
    seen, stop = set(), threading.Event()

    def write():
        while not stop.is_set():
            with atomic_file(tmp_path / "x") as part:
                part.write_text("")

    writer = threading.Thread(target=write)
    try:
        writer.start()
        for number in range(300):
            file = tmp_path / f"{number}"
            file.touch()
            seen.add(stat.S_IMODE(file.stat().st_mode))
    finally:
        stop.set()
        writer.join()
        os.umask(before)
    assert seen == {0o600}


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127, "😀" * 63, "a[1]*?.npy", "a b", "-x", ".hidden"])
def test_any_name_that_the_disk_takes(tmp_path, name):
    path = tmp_path / name
    for text in ("one", "two"):
        with atomic_file(path) as part:
            part.write_text(text)
    assert path.read_text() == "two"
    path.unlink()
    write_folder(path, "one")
    write_folder(path, "two")
    assert (path / "a").read_text() == "two"
    assert names(tmp_path) == [name]


def test_a_name_that_is_not_utf8(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    with atomic_file(path) as part:
        part.write_text("x")
    assert path.read_text() == "x"


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "x", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with atomic_file(link) as part:
        part.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_linked_folder_is_replaced_where_it_is(tmp_path):
    write_folder(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_folder(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a").read_text() == "new"
    assert names(tmp_path) == ["link", "real"]


def test_a_pipe_that_nobody_reads_is_one_line(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("happier.storage.atomic._READER_SECONDS", 0.0)
    with pytest.raises(DataError, match="a pipe without a reader"), atomic_file(tmp_path / "pipe") as part:
        part.write_text("x")


def test_a_pipe_gets_the_content(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    with atomic_file(pipe) as part:
        part.write_text("content")
    assert reader.communicate()[0] == b"content"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("place", ["/dev/null", "/dev/stderr"])
def test_devices_survive(place):
    before = Path(place).stat().st_mode
    with atomic_file(place) as part:
        part.write_text("")
    assert Path(place).stat().st_mode == before


def test_a_directory_in_the_place_of_a_file(tmp_path):
    with pytest.raises(DataError, match="is a directory"), atomic_file(tmp_path):
        pytest.fail("the block must not run")
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DataError, match=r"cannot write .*Not a directory"),
        atomic_file(tmp_path / "file" / "x"),
    ):
        pytest.fail("the block must not run")
    with pytest.raises(DataError, match="it is a file"), atomic_folder(tmp_path / "file", replace=True):
        pytest.fail("the block must not run")


# Leftovers


def test_a_killed_writer_leaves_what_the_next_one_removes(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def write_and_die():
        with atomic_file(path) as part:
            part.write_text("half")
            kill_self()

    assert exit_code(fork(write_and_die)) == -9
    assert path.read_text() == "old"
    assert len(names(tmp_path)) == 2
    with atomic_file(path) as part:
        part.write_text("new")
    assert names(tmp_path) == ["x"]


def test_a_living_writer_is_left_alone(tmp_path):
    path, started, finish = tmp_path / "x", Gate(), Gate()

    def write_slowly():
        with atomic_file(path) as part:
            # A library may write beside its target and rename over it.
            part.with_name("other").write_text("slow")
            part.with_name("other").replace(part)
            started.open()
            finish.wait()

    child = fork(write_slowly)
    started.wait()
    remove_leftovers(path)
    with atomic_file(path) as part:
        part.write_text("fast")
    assert path.read_text() == "fast"
    finish.open()
    assert exit_code(child) == 0
    assert path.read_text() == "slow"
    assert names(tmp_path) == ["x"]


def test_a_leftover_that_is_removed_in_the_moment_of_its_making(tmp_path, monkeypatch):
    """Between making its scratch folder and locking it, a writer's folder looks like a leftover."""
    path, real, removed = tmp_path / "x", os.open, []

    def open_after_a_cleaner(name, *arguments, **options):
        if not removed and str(name).endswith(".part"):
            removed.append(name)
            monkeypatch.setattr(os, "open", real)
            remove_leftovers(path)
        return real(name, *arguments, **options)

    monkeypatch.setattr(os, "open", open_after_a_cleaner)
    with atomic_file(path) as part:
        part.write_text("x")
    assert removed
    assert path.read_text() == "x"


def test_many_writers_of_one_file(tmp_path):
    path = tmp_path / "x"

    def write_often(number):
        for _ in range(60):
            with atomic_file(path) as part:
                part.write_text(str(number) * 5000)

    children = [fork(write_often, number) for number in range(4)]
    assert [exit_code(child) for child in children] == [0] * 4
    text = path.read_text()
    assert len(text) == 5000
    assert len(set(text)) == 1
    assert names(tmp_path) == ["x"]


def test_a_fork_that_ends_inside_the_block_takes_nothing_away(tmp_path):
    try:
        with scratch_folder(tmp_path / "x") as part:
            (part / "a").write_text("a")
            child = os.fork()
            if child == 0:
                raise SystemExit
            assert exit_code(child) == 0
            assert (part / "a").exists()
    except SystemExit:
        os._exit(0)
    assert names(tmp_path) == []


def test_leftovers_of_other_targets_and_strange_things_stay(tmp_path):
    for name in (".y.1234.part", "x.part", ".x.part2"):
        (tmp_path / name).mkdir()
    (tmp_path / ".x.link.part").symlink_to("/etc")
    os.mkfifo(tmp_path / ".x.pipe.part")  # opened without waiting for a writer, and removed
    remove_leftovers(tmp_path / "x")
    assert names(tmp_path) == [".x.link.part", ".x.part2", ".y.1234.part", "x.part"]
    assert Path("/etc").is_dir()
    remove_leftovers(tmp_path / "missing" / "x")


# Folders


def test_a_folder_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "f"
    with atomic_folder(path) as part:
        (part / "sub").mkdir()
        (part / "sub" / "a").write_text("a")
        (part / "link").symlink_to("sub")
        os.mkfifo(part / "pipe")
        assert not path.exists()
    assert (path / "sub" / "a").read_text() == "a"
    assert names(tmp_path) == ["f"]


def test_a_folder_of_many_files_is_flushed_at_once(tmp_path):
    with atomic_folder(tmp_path / "f") as part:
        for number in range(400):
            (part / str(number)).touch()
    assert len(names(tmp_path / "f")) == 400


def test_who_finishes_first_is_kept_unless_replaced(tmp_path):
    path = tmp_path / "f"
    write_folder(path, "old")
    write_folder(path, "later", replace=False)
    assert (path / "a").read_text() == "old"
    write_folder(path, "new", replace=True)
    assert (path / "a").read_text() == "new"
    assert names(tmp_path) == ["f"]


def test_an_error_keeps_the_old_folder(tmp_path):
    write_folder(tmp_path / "f", "old")
    with pytest.raises(KeyError), atomic_folder(tmp_path / "f", replace=True) as part:
        (part / "a").write_text("new")
        raise KeyError
    assert (tmp_path / "f" / "a").read_text() == "old"
    assert names(tmp_path) == ["f"]


@pytest.mark.parametrize("replace", [True, False])
def test_a_folder_with_nothing_but_its_lock_counts_as_missing(tmp_path, replace):
    with locked(tmp_path / "f"):
        write_folder(tmp_path / "f", "new", replace=replace)
    assert (tmp_path / "f" / "a").read_text() == "new"


def test_a_folder_that_others_make_and_remove_meanwhile(tmp_path):
    path = tmp_path / "f"

    def write_often(text):
        for _ in range(60):
            write_folder(path, text)

    def move_away():
        for number in range(60):
            try:
                path.rename(tmp_path / f"away{number}")
            except OSError:
                continue

    children = [fork(write_often, text) for text in "ab"] + [fork(move_away)]
    assert [exit_code(child) for child in children] == [0] * 3
    write_folder(path, "end")
    assert (path / "a").read_text() == "end"
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


def test_a_reader_never_misses_a_folder_that_is_replaced(tmp_path):
    path, stop = tmp_path / "f", Gate()
    write_folder(path, "0")

    def replace_often():
        for number in range(100):
            write_folder(path, str(number))
        stop.open()

    child = fork(replace_often)
    os.set_blocking(stop.reader, False)
    reads = 0
    while True:
        assert path.is_dir()
        reads += 1
        try:
            stop.wait()
            break
        except BlockingIOError:
            continue
    assert exit_code(child) == 0
    assert reads > 100


@pytest.fixture
def without_exchange(monkeypatch):
    """A file system that cannot exchange two names in one step."""

    class System:
        def __init__(self, *arguments, **options):
            pass

        def renameat2(self, *arguments):
            atomic.ctypes.set_errno(errno.EINVAL)
            return -1

    monkeypatch.setattr(atomic.ctypes, "CDLL", System)


@pytest.mark.usefixtures("without_exchange")
def test_folders_are_replaced_where_names_cannot_be_exchanged(tmp_path):
    write_folder(tmp_path / "f", "old")
    write_folder(tmp_path / "f", "new")
    assert (tmp_path / "f" / "a").read_text() == "new"
    assert names(tmp_path) == ["f"]


@pytest.mark.usefixtures("without_exchange")
@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_a_kill_between_the_three_steps_loses_nothing(tmp_path, killed_at, monkeypatch):
    path = tmp_path / "f"
    write_folder(path, "old")

    def replace_and_die():
        calls, real = 0, Path.rename

        def rename(self, target):
            nonlocal calls
            calls += 1
            if calls == killed_at:
                kill_self()
            return real(self, target)

        Path.rename = rename
        write_folder(path, "new")

    assert exit_code(fork(replace_and_die)) == -9
    remove_leftovers(path)
    assert (path / "a").read_text() == ("new" if killed_at == 3 else "old")
    assert names(tmp_path) == ["f"]


def test_a_lock_goes_with_its_folder(tmp_path):
    path, holding, finish = tmp_path / "f", Gate(), Gate()
    write_folder(path, "old")

    def replace_and_hold():
        with locked(path):
            write_folder(path, "new")
            holding.open()
            finish.wait()

    child = fork(replace_and_hold)
    holding.wait()
    assert (path / "a").read_text() == "new"
    with pytest.raises(HappierError, match="is being changed by process"), locked(path, wait=False):
        pytest.fail("the lock is held")
    finish.open()
    assert exit_code(child) == 0
    with locked(path, wait=False):
        assert (path / LOCK_FILE).exists()


# Space


def test_reserved_space_is_there(tmp_path):
    reserve(tmp_path / "x", 3_000_000)
    assert (tmp_path / "x").stat().st_size == 3_000_000
    assert (tmp_path / "x").stat().st_blocks * 512 >= 3_000_000
    reserve(tmp_path / "empty", 0)
    assert (tmp_path / "empty").stat().st_size == 0


def test_space_is_reserved_where_the_file_system_cannot(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    reserve(tmp_path / "x", 3_000_001)
    assert (tmp_path / "x").stat().st_size == 3_000_001


def test_what_can_be_flushed(tmp_path):
    (tmp_path / "x").write_text("x")
    sync(tmp_path / "x")
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "y")


# Errors of the disk


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; free some space"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system; choose a place"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/other"), r"No such file \(/other\); choose"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (RuntimeError("PytorchStreamWriter failed writing file data/1: file write failed"), "No space left"),
        (RuntimeError("[enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0"), "No space left"),
        (RuntimeError("Error in x: write error: No space left on device"), "No space left"),
        (ValueError("I/O error: Read-only file system (os error 30)"), "Read-only file system"),
    ],
)
def test_the_disk_becomes_our_error(cause, message):
    with pytest.raises(CheckpointError, match=f"cannot write /x/y: .*{message}"):  # noqa: SIM117
        with disk_errors("/x/y", error=CheckpointError):
            raise cause
    with pytest.raises(DataError, match=r"; do this$"), disk_errors("/x/y", hint="do this"):
        raise cause


@pytest.mark.parametrize(
    "cause",
    [ValueError("x"), RuntimeError("shape"), ConnectionResetError(errno.ECONNRESET, "x"), OSError("x")],
)
def test_other_errors_stay_what_they_are(cause):
    with pytest.raises(type(cause)), disk_errors("/x"):
        raise cause


@pytest.fixture
def full_disk(tmp_path):
    """A disk of 256 KiB; needs the right to mount."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no right to mount a small disk: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def _arrow(part):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": np.random.default_rng(0).random(100_000)}), part)


def _torch(part):
    import torch

    torch.save(torch.zeros(100_000), part)


def _torch_file(part):
    import torch

    with part.open("wb") as file:
        torch.save(torch.zeros(100_000), file)


def _faiss(part):
    import faiss

    index = faiss.IndexFlatL2(8)
    index.add(np.zeros((50_000, 8), np.float32))
    faiss.write_index(index, str(part))


def _safetensors(part):
    import torch
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(100_000)}, part)


def _pillow(part):
    from PIL import Image

    Image.fromarray(np.random.default_rng(0).integers(0, 255, (600, 600, 3), dtype=np.uint8)).save(
        part, format="png"
    )


WRITERS = {
    "arrow": _arrow,
    "torch": _torch,
    "torch to a file": _torch_file,
    "faiss": _faiss,
    "safetensors": _safetensors,
    "pillow": _pillow,
    "numpy": lambda part: np.save(part, np.zeros(100_000)),
    "numpy to a map": lambda part: reserve(part, 800_000),
    "pandas": lambda part: __import__("pandas").DataFrame({"x": np.arange(100_000)}).to_csv(part),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_one_line_and_keeps_the_old_file(full_disk, writer):
    path = full_disk / "x.npy"
    path.write_text("old")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            pytest.raises(DataError, match="No space left on device; free some space"),
            atomic_file(path) as part,
        ):
            WRITERS[writer](part)
    assert path.read_text() == "old"
    assert names(full_disk) == ["x.npy"]


def fill(file):
    while True:
        file.write(bytes(4096))


def test_a_lock_holds_on_a_full_disk(full_disk):
    (full_disk / "run").mkdir()
    with (full_disk / "ballast").open("wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space left"):
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
        with pytest.raises(OSError, match="No space left"):
            fill(file)

    def try_it():
        with pytest.raises(HappierError, match="is being changed by another process"):  # noqa: SIM117
            with locked(full_disk / "run", wait=False):
                pass

    with locked(full_disk / "run"):
        assert (full_disk / "run" / LOCK_FILE).read_text() == ""  # no room for a name
        assert exit_code(fork(try_it)) == 0


def test_a_disk_that_is_read_only(full_disk):
    (full_disk / "x").write_text("old")
    subprocess.run(["mount", "-o", "remount,ro", full_disk], check=True)
    for write in (atomic_file, atomic_folder, locked, scratch_folder):
        with pytest.raises(DataError, match="Read-only file system; choose a place"), write(full_disk / "y"):
            pytest.fail("the block must not run")
    assert (full_disk / "x").read_text() == "old"


@pytest.mark.skipif(ROOT, reason="root may write anywhere")
def test_a_folder_that_one_may_not_write_to(tmp_path):
    tmp_path.chmod(0o555)
    for write in (atomic_file, atomic_folder, locked, scratch_folder):
        with pytest.raises(DataError, match="Permission denied; choose a place"), write(tmp_path / "y"):
            pytest.fail("the block must not run")
    tmp_path.chmod(0o755)


# The command


def test_the_command_says_in_one_line_what_the_disk_refuses(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "images" / "a").mkdir(parents=True)
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "a" / "x.png")
    for output, what in [
        (tmp_path / "file" / "x.parquet", "Not a directory"),
        (tmp_path / ("x" * 300 + ".parquet"), "File name too long"),
        ("/proc/x.parquet", "No such file or directory"),
    ]:
        code, _, said = run_command("data", "import", "folder", tmp_path / "images", "-o", output)
        assert code == 2, said
        assert what in said
        assert said.count("\n") == 1


def test_the_output_itself_may_be_on_a_full_disk():
    code, _, said = run_command("data", "list", output=Path("/dev/full"))
    assert (code, said.count("\n")) == (2, 1)
    assert "No space left on device" in said


def test_the_output_may_be_a_closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    code, _, said = run_command("data", "list", output=writer)
    os.close(writer)
    assert (code, said) == (1, "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EIO, "Input/output error", "/disk/x"), "happier: /disk/x: Input/output error; choose"),
        (RuntimeError("PytorchStreamWriter failed writing file data/1: file write failed"), "No space left"),
        (KeyError("a bug of ours"), "Traceback"),
    ],
)
def test_an_error_that_nobody_caught(error, said, monkeypatch):
    def fail(**_):
        raise error

    monkeypatch.setattr("happier.cli.app", fail)
    code, _, line = run_command("data", "list")
    assert said in line
    assert code == (1 if isinstance(error, KeyError) else 2)
