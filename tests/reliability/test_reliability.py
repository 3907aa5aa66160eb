"""A part of ``make reliability``, in processes of their own that fork the commands; and its page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reliability.tracing import supported

from reliability import page

SUPPORT = Path(__file__).parents[1] / "support"
REASON = supported()


def run(*words):
    paths = [str(SUPPORT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "reliability", *words]
    return subprocess.run(command, env=environment, text=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(bool(REASON), reason=REASON)
@pytest.mark.parametrize("kinds", [("crash",), ("pairs", "damage", "full", "small")], ids="-".join)
def test_nothing_is_lost_and_nothing_is_wrong(kinds):
    done = run(*kinds, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in kinds:
        assert f"{kind}: {{" in done.stdout or "skipped" in done.stdout


def test_the_page_is_what_the_command_wrote():
    results = json.loads(page.RESULTS.read_text())
    assert page.PAGE.read_text() == page.render(results)


def test_the_page_lists_every_fault_of_the_results():
    results = json.loads(page.RESULTS.read_text())
    assert set(results) >= {"crash", "pairs", "damage", "full"}
    text = page.PAGE.read_text()
    faults = [fault for kind in results.values() for one in kind.values() for fault in one["faults"]]
    assert [fault for fault in faults if fault not in text] == []
