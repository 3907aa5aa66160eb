"""How the code is kept: functions that fit on a screen, and guards that fail when they should."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 60  # lines of a body, docstring aside; compiled kernels are exempt


def sources(*folders):
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def long_functions(paths):
    """Functions whose body has more than `LONGEST` lines, and how many it has."""
    found = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > LONGEST:
                found[f"{path.name}:{node.name}"] = body_lines(node)
    return found


def body_lines(node):
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return body[-1].end_lineno - body[0].lineno + 1


def test_functions_fit_on_a_screen():
    paths = sources("src", "experiments")
    assert len(paths) > 150
    assert long_functions(path for path in paths if not path.name.endswith("kernel.py")) == {}


def test_a_long_function_is_found(tmp_path):
    text = 'class C:\n    def f(\n        self,\n    ):\n        """One.\n\n        Two.\n        """\n'
    (tmp_path / "fits.py").write_text(text + LONGEST * "        x = 1\n")
    (tmp_path / "long.py").write_text(text + (LONGEST + 1) * "        x = 1\n")
    assert long_functions(tmp_path.iterdir()) == {"long.py:f": LONGEST + 1}


def test_folders_of_tests_mirror_those_of_the_source():
    """Beside them: modules at the top and the package as a whole, the harness, and the studies."""
    source = {path.name for path in (ROOT / "src" / "happier").iterdir() if (path / "__init__.py").exists()}
    tests = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    assert source - {"conf"} == tests - {"package", "reliability", "experiments"}


def test_more_than_eight_arguments_need_a_reason(tmp_path):
    """Ruff finds them; what is left is that an exception to its rule says why."""
    (tmp_path / "many.py").write_text("def f(a, b, c, d, e, f, g, h, i): ...\n")
    command = [Path(sys.executable).with_name("ruff"), "check", "--no-cache", "--select", "PLR0913"]
    command += ["--config", ROOT / "pyproject.toml"]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=False)
    assert "Too many arguments in function definition (9 > 8)" in done.stdout
    exceptions = [
        line
        for path in sources("src", "experiments")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "noqa" in line and "PLR0913" in line
    ]
    assert exceptions
    assert [line for line in exceptions if not re.search(r"PLR0913 - \w+ \w+", line)] == []


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
