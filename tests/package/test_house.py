"""How the code is kept: functions that fit on a screen, and guards that fail when they should."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 60  # lines of a body, docstring aside; compiled kernels are exempt


def functions():
    for folder in ("src", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name.endswith("kernel.py"):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield path, node


def body_lines(node):
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return body[-1].end_lineno - body[0].lineno + 1


def test_functions_fit_on_a_screen():
    long = {f"{path.relative_to(ROOT)}:{node.name}": body_lines(node) for path, node in functions()}
    assert {name: lines for name, lines in long.items() if lines > LONGEST} == {}


def test_the_length_is_that_of_the_body():
    node = ast.parse(
        'def f(\n    a,\n    b,\n):\n    """One.\n\n    Two.\n    """\n    x = 1\n    return x\n'
    ).body[0]
    assert body_lines(node) == 2


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [("losses/nearby.py", "encoder"), ("metrics/nearby.py", "data"), ("data/nearby.py", "cli")],
)
def test_a_forbidden_import_is_seen(tmp_path, module, forbidden):
    """The contract on imports is tested by breaking it, in a copy."""
    source = tmp_path / "src" / "happier"
    for path in (ROOT / "src" / "happier").rglob("*.py"):
        copy = source / path.relative_to(ROOT / "src" / "happier")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    linter = Path(sys.executable).with_name("lint-imports")

    def run():
        return subprocess.run(
            [linter, "--no-cache"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )

    (source / module).write_text(f"from happier import {forbidden}\n")
    done = run()
    assert done.returncode == 1, done.stdout
    part = module.split("/")[0]
    assert f"happier.{part} is not allowed to import happier.{forbidden}" in done.stdout
    (source / module).unlink()
    assert run().returncode == 0
