"""Compiled functions are kept until a source changes; where none can be, all works but starts slower."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import happier
from happier.numba_cache import COMPILED

PACKAGE = Path(happier.__file__).parent
PROGRAM = """
import torch
from happier.numba_cache import CACHE
from happier.metrics import graded_h_ap

print(CACHE, graded_h_ap(torch.tensor([[1.0, 0.5, 0.0]])).tolist())
"""
# A function of one file that calls a compiled function of another.
CALLER = """

@_jit
def gain_at(rank):
    problem = Problem(AP, np.zeros(0), 1.0, False, False, 1.0, False)
    return gain_of_positive(problem, rank, 1.0, 1.0, np.zeros(0))[0]
"""
CALL = """
from happier.losses._sum_kernel import gain_at

print(gain_at(4.0), sum(gain_at.stats.cache_hits.values()))
"""


def run(program=PROGRAM, **environment):
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )


def test_metrics_work_where_nothing_can_be_written():
    # The one way to find a place that is left is that of notebooks: there is none, as in a read-only system.
    none = run(NUMBA_CACHE_LOCATOR_CLASSES="IPythonCacheLocator")
    assert none.stdout.split() == ["False", "[1.0]"]
    assert "NUMBA_CACHE_DIR" in none.stderr


def test_compiled_code_is_kept_in_the_folder_that_is_named(tmp_path):
    kept = run(NUMBA_CACHE_DIR=str(tmp_path))
    assert kept.stdout.split() == ["True", "[1.0]"]
    assert kept.stderr == ""
    assert list(tmp_path.rglob("*.nbc"))


def test_a_change_in_a_file_compiles_the_functions_of_others_again(tmp_path):
    copy = tmp_path / "happier"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "static"))
    with (copy / "losses/_sum_kernel.py").open("a") as file:
        file.write(CALLER)

    def call():
        return run(CALL, PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "cache")).stdout.split()

    assert call() == ["0.25", "0"]
    assert call() == ["0.25", "1"]
    shared = copy / "losses/_kernel_problem.py"
    source = shared.read_text()
    shared.write_text(source.replace("return graded / rank,", "return 3.0 * graded / rank,"))
    assert shared.read_text() != source
    assert call() == ["0.75", "0"]
    assert call() == ["0.75", "1"]


def _imports(tree):
    """Name -> file below the package, for all that a module imports from it."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("happier."):
            path = node.module.removeprefix("happier.").replace(".", "/")
            path = f"{path}.py" if (PACKAGE / f"{path}.py").exists() else f"{path}/__init__.py"
            found |= {alias.asname or alias.name: path for alias in node.names}
    return found


def test_every_file_that_is_compiled_in_is_known():
    """A file that imports `jit`, and every file from which its compiled functions take a name."""
    needed = set()
    for path in PACKAGE.rglob("*.py"):
        imported = _imports(tree := ast.parse(path.read_text()))
        if imported.get("jit") != "numba_cache.py":
            continue
        needed.add(path.relative_to(PACKAGE).as_posix())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and _is_compiled(function, tree):
                names = {
                    node.id
                    for statement in function.body
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name)
                }
                needed |= {imported[name] for name in names & imported.keys()}
    assert needed == set(COMPILED)


def _is_compiled(function, tree):
    """Whether a decorator is `jit(...)` or a name that is bound to `jit(...)` in this module."""
    bound = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_jit(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(
        _is_jit(decorator) or (isinstance(decorator, ast.Name) and decorator.id in bound)
        for decorator in function.decorator_list
    )


def _is_jit(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "jit"
