"""What README and docs say works: Python blocks run, commands and options exist, links lead somewhere."""

import ast
import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from happier.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def python_blocks(page):
    fence = r"^(<!-- not run: [^>]*-->\n+)?```python\n(.*?)^```"
    return re.findall(fence, page.read_text(), flags=re.MULTILINE | re.DOTALL)


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """The blocks of a page run one after another, as a reader would paste them.

    Of a block under a comment "not run: ..." only the imports are run.
    """
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for number, (note, block) in enumerate(python_blocks(page), start=1):
        tree = ast.parse(block)
        if note:
            tree.body = [line for line in tree.body if isinstance(line, ast.Import | ast.ImportFrom)]
        exec(compile(tree, f"{page.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")], ids=name_of)
def test_sessions_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert failed == 0
    assert tried > 0


def commands():
    for page in PAGES:
        for block in [*blocks(page, "bash"), *blocks(page, "console")]:
            for line in block.replace("\\\n", " ").splitlines():
                words = line.split(" #")[0].strip().removeprefix("$ ").split(";")[0]
                words = re.sub(r"^([A-Z_]+=\S+ )+", "", words)
                if words.startswith("happier "):
                    yield pytest.param(words, id=f"{name_of(page)}: {words}")


@pytest.mark.parametrize("line", list(commands()))
def test_commands_exist_with_their_options(line):
    words = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        assert words[0] in command.commands, f"no such command: {line}"
        command = command.commands[words.pop(0)]
    known = {
        option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]
    }
    for word in words:
        if re.match(r"--[a-z]", word):
            assert word.split("=")[0] in known | {"--help"}, f"no such option: {word} in {line}"


def targets():
    for page in PAGES:
        for block in blocks(page, "bash"):
            for target in re.findall(r"^make ([a-z-]+)", block, flags=re.MULTILINE):
                yield pytest.param(target, id=f"{name_of(page)}: make {target}")


@pytest.mark.parametrize("target", list(targets()))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not re.match(r"[a-z]+:", link):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    mkdocs = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "HAPPIERLoss" in (tmp_path / "site" / "api" / "losses" / "index.html").read_text()
