"""A machine that differs in everything: locale, time zone, umask, home, cores, programs, the path, Ctrl-C."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from shapes import make_shapes


def ignore_interrupts():
    """As in the background job of a shell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


COMMANDS = """
import os, signal, sys
from happier.cli import main

os.umask(0o077)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
place, images = sys.argv[1:]
run, index, manifest = f"{place}/run", f"{place}/index", f"{images}/manifest.parquet"
for words in (
    ("train", "recipe=small", "loss=nsm", f"run=\'{run}\'", f"data.manifest=\'{manifest}\'",
     "training.epochs=1", "training.batch_size=16", "training.tensorboard=false", "data.workers=0"),
    ("evaluate", run, "--resamples", "10", "--json", f"{place}/figures.json"),
    ("index", run, manifest, "-o", index, "--split", "test"),
    ("search", index, f"{images}/0_3_0.png", "--json"),
    ("search", index, f"{images}/missing ğ.png"),
    ("identify", index, f"{images}/0_3_0.png", "--csv"),
    ("data", "suspects", index, "-o", f"{place}/şüpheli.csv"),
    ("data", "tree", manifest, "--html", f"{place}/ağaç.html"),
    ("report", run, "-o", f"{place}/Bericht ö", "--resamples", "10", "--no-figures"),
    ("export", run, f"{place}/für atlas.parquet", "--to", "atlas"),
    ("fit", manifest, "-o", f"{place}/fit ü", "--train", "head", "model.backbone=test_resnet",
     "model.pretrained=null", "transform.size=32", "transform.normalize=imagenet", "training.steps=3",
     "data.workers=0"),
):
    sys.argv = ["happier", *words]
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    print(words[0], "ended with", code, file=sys.stderr, flush=True)
"""


@pytest.fixture
def turkish(tmp_path):
    """A folder with a Turkish locale, where the system can make one; else an empty one, which means C."""
    folder = tmp_path / "locales"
    folder.mkdir()
    if shutil.which("localedef"):
        command = ["localedef", "-i", "tr_TR", "-f", "UTF-8", folder / "tr_TR.UTF-8"]
        subprocess.run(command, capture_output=True, check=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("language", ["C", "tr_TR.UTF-8"])
def test_everything_works_on_a_machine_that_differs(tmp_path, turkish, language):
    place = tmp_path / "Bilder für İğdir"
    images = make_shapes(place / "Äpfel und şişe", items=4, views=3).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("LC_", "XDG_"))},
        "LC_ALL": language,
        "LOCPATH": str(turkish),
        "TZ": "Asia/Kathmandu",
        "HOME": "/proc",  # nobody can write there
        "PATH": "/nonexistent",  # no npm, no git, no nvidia-smi
    }
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, str(place), str(images)],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        preexec_fn=ignore_interrupts,
    )
    assert "Traceback" not in done.stderr, done.stderr
    ends = [line for line in done.stderr.splitlines() if " ended with " in line]
    assert [line.split()[-1] for line in ends] == list("00002000000"), done.stderr
    assert "missing ğ.png" in done.stderr
    names = ("run/model.safetensors", "figures.json", "index/index.json", "şüpheli.csv", "ağaç.html")
    for name in (*names, "Bericht ö/index.html", "für atlas.parquet", "fit ü/index/index.json"):
        assert (place / name).stat().st_mode & 0o077 == 0, "as private as the user wants new files to be"
