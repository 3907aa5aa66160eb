"""The data commands on machines that differ: locale, umask, time zone, read-only home, full disk."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from happier.data import Manifest

CHAIN = """
import os, sys
from happier.cli import main

os.umask(0o077)
for arguments in sys.argv[1].split(";"):
    sys.argv = ["happier", "data", *arguments.split("|")]
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    print("exit", code, flush=True)
    print("exit", code, file=sys.stderr, flush=True)
"""


def run(*commands, **environment):
    """Run data commands in one process; exit codes and the lines of the error stream of each."""
    text = ";".join("|".join(map(str, command)) for command in commands)
    done = subprocess.run(
        [sys.executable, "-c", CHAIN, text], env={**os.environ, **environment}, capture_output=True
    )
    out, err = (stream.decode("utf-8", "backslashreplace") for stream in (done.stdout, done.stderr))
    assert done.returncode == 0, err
    assert "Traceback" not in err
    codes = [int(line.split()[1]) for line in out.splitlines() if line.startswith("exit ")]
    return codes, [part.strip().splitlines() for part in err.split("exit ")]


@pytest.fixture
def photos(tmp_path, make_image):
    place = tmp_path / "ein Ordner mit Umläuten"
    for item in range(8):
        for image in range(2):
            path = place / "photos" / f"kind ö{item // 2}" / f"ğı İ{item}" / f"{image} 図.png"
            make_image(path, seed=10 * item + image)
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "TZ": "Asia/Kathmandu"},
        # The encoding of a Turkish terminal, which lacks most letters of these names.
        {"PYTHONIOENCODING": "iso8859-9", "LC_ALL": "tr_TR"},
        {"PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"},
    ],
)
def test_locales_and_umask(photos, environment):
    table, split = photos / "m.parquet", photos / "s ß.csv"
    codes, errors = run(
        ("import", "folder", photos / "photos", "-o", table, "--levels", "kind,item"),
        ("split", table, "-o", split),
        ("check", split),
        ("check", split, "--json"),
        ("check", photos / "none ö.csv"),
        **environment,
    )
    assert codes == [0, 0, 0, 0, 2], errors
    assert set(Manifest.read(split).table["split"]) == {"train", "test"}
    assert table.stat().st_mode & 0o777 == 0o600, "as private as the user wants new files to be"


@contextmanager
def mounted(place: Path, options: str):
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no right to mount: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"), [("ro", "Read-only file system"), ("size=8k", "No space left on device")]
)
def test_read_only_and_full_disk(photos, tmp_path, options, reason):
    table = photos / "m.parquet"
    with mounted(tmp_path / "disk", options) as disk:
        if options != "ro":
            (disk / "fill").write_bytes(bytes(8192))
        codes, errors = run(
            ("import", "folder", photos / "photos", "-o", table, "--levels", "kind,item"),
            ("import", "folder", photos / "photos", "-o", disk / "m.parquet"),
            ("import", "folder", photos / "photos", "-o", disk / "m.csv"),
            ("split", table, "-o", disk / "s.parquet"),
            ("fetch", "emoji"),
            ("list",),
            HOME=str(disk),
            XDG_CACHE_HOME="",
            HAPPIER_CACHE="",
            PATH="/nonexistent",
        )
        left = sorted(
            path.name
            for path in disk.rglob("*")
            if path.is_file() and path.name != ".lock" and ".npm" not in path.parts
        )
    assert codes == [0, 2, 2, 2, 2, 0], errors
    for lines in errors[1:4]:
        (line,) = [line for line in lines if line.startswith("happier: ")]
        assert reason in line
    assert left == ([] if options == "ro" else ["fill"])


@pytest.mark.slow
def test_nothing_is_written_over_what_is_read(photos):
    table, link = photos / "m.csv", photos / "link.csv"
    codes, _ = run(("import", "folder", photos / "photos", "-o", table, "--levels", "kind,item"))
    link.symlink_to(table.name)
    before = table.read_bytes()
    codes, errors = run(
        ("split", table, "-o", table),
        ("split", table, "-o", link),
        ("import", "csv", table, "-o", table),
        ("split", table, "-o", photos),
        ("split", table, "-o", photos / "s.csv", "--seed", "-5"),
    )
    assert codes == [2, 2, 2, 2, 2], errors
    assert "is the input; choose another name" in "".join(errors[0])
    assert table.read_bytes() == before
