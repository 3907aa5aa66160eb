"""The guide "Build on it" works as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from happier.web.server import ExplorerServer, access_for, open_explorer

pytestmark = pytest.mark.slow
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "build-on-it.md"


def block(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_curl_python_and_javascript_run(place, tmp_path, photo):
    shutil.copytree(place / "a.index", tmp_path / "photos.index")
    (tmp_path / "tokens.toml").write_text(block("toml")[0])
    (tmp_path / "owl.png").write_bytes(photo)
    explorer = open_explorer(tmp_path / "photos.index", writes=tmp_path / "added-photos")
    access = access_for("127.0.0.1", token=None, token_file=tmp_path / "tokens.toml")
    (tmp_path / "search.mjs").write_text(block("javascript")[0])
    (tmp_path / "search.py").write_text(block("python")[0])
    (tmp_path / "curl.sh").write_text(next(code for code in block("bash") if code.startswith("curl")))
    node = shutil.which("node")
    assert node is not None
    commands = (["bash", "-ex", "curl.sh"], [sys.executable, "search.py"], [node, "search.mjs"])
    with ExplorerServer(explorer, access=access).running() as server:
        environment = {**os.environ, "ADDRESS": server.address, "TOKEN": access.tokens[0].secret}
        for command in commands:
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.splitlines()[-1].startswith("3 ")
    assert len(explorer.model("a").index) == 61
