"""What README and docs say works: code runs, commands, options and overrides exist, links lead somewhere."""

import ast
import doctest
import re
import shlex
from pathlib import Path

import pytest
import typer.main

from happier.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def python_blocks(page):
    """Of each block: whether it is not run, a package that it needs, the code, and the output below it."""
    note = r"(?:<!-- (not run|needs): ([^>]*) -->\n+)?"
    fence = rf"^{note}```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?"
    for kind, value, code, output in re.findall(fence, page.read_text(), flags=re.MULTILINE | re.DOTALL):
        yield kind == "not run", value if kind == "needs" else "", code, output


def name_of(page):
    return str(page.relative_to(ROOT))


# What the libraries in the examples say about their own insides.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True:UserWarning")
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    """The blocks of a page run one after another, as a reader would paste them, and print what it shows.

    Of a block under a comment "not run: ..." only the imports are run; one under "needs: PACKAGE" has a test
    of its own.
    """
    monkeypatch.chdir(tmp_path)
    run_blocks(page, capsys)


def run_blocks(page, capsys, installed=""):
    names = {"__name__": "page"}
    for number, (not_run, package, block, output) in enumerate(python_blocks(page), start=1):
        if package != "" and package != installed:
            continue
        tree = ast.parse(block)
        if not_run:
            tree.body = [line for line in tree.body if isinstance(line, ast.Import | ast.ImportFrom)]
        capsys.readouterr()
        exec(compile(tree, f"{page.name}, block {number}", "exec"), names)
        if output:
            assert capsys.readouterr().out == output


@pytest.mark.filterwarnings("ignore")  # other packages' own
@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "package"),
    [
        pytest.param(page, package, id=f"{name_of(page)}: {package}")
        for page in PAGES
        for _, package, _, _ in python_blocks(page)
        if package
    ],
)
def test_blocks_that_need_another_package_run_where_it_is_installed(page, package, capsys):
    pytest.importorskip(package)
    run_blocks(page, capsys, package)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")], ids=name_of)
def test_sessions_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert failed == 0
    assert tried > 0


def lines_of_commands(page):
    """Lines of blocks and indented lines, and code within a sentence, that call the command."""
    text = page.read_text().replace("\\\n", " ")
    for block in re.findall(r"^```(?:bash|console)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"^    ((?:torchrun|happier|srun) .*)$", text, flags=re.MULTILINE)
    yield from (re.sub(r"\s+", " ", code) for code in re.findall(r"(?<!`)`(happier [^`]+)`(?!`)", text))


def commands():
    for page in PAGES:
        for line in dict.fromkeys(lines_of_commands(page)):
            words = line.split(" #")[0].strip().removeprefix("$ ").split(";")[0]
            words = re.sub(r"^(\w+=(\$\(.*?\)|\S+) |srun |ssh .*?(?=happier))+", "", words)
            words = re.sub(r"^torchrun .*? -m happier ", "happier ", words)
            if re.match(r"happier [a-z-]", words):
                yield pytest.param(words, id=f"{name_of(page)}: {words}")


@pytest.mark.parametrize("line", list(commands()))
def test_commands_exist_with_their_options(line):
    words = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        names = words.pop(0).split("/")  # several in short: "happier data list/fetch"
        assert set(names) <= set(command.commands), f"no such command: {line}"
        command = command.commands[names[0]]
    known = {
        option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]
    }
    for word in words:
        if re.match(r"--[a-z]", word):
            assert word.split("=")[0] in known | {"--help"}, f"no such option: {word} in {line}"
    if command.name == "train" and "..." not in line:
        check_overrides(words)


def check_overrides(words):
    """The configuration that a line describes exists; of a sweep, its first job."""
    from happier.training.compose import compose

    given = [word for word in words if "=" in word and not word.startswith(("-", "hydra"))]
    given = [re.sub(r"=([^,\[]+),.*", r"=\1", word) for word in given if not re.search(r"[$A-Z]", word)]
    if given:
        compose(given)


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
