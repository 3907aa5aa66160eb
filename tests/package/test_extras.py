"""With a part of the optional dependencies installed, everything works or names the extra that it needs."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from happier.errors import MissingExtraError
from happier.extras import needs_extra
from happier.version import DISTRIBUTION, warn_of_namesake

# `bench` brings other libraries' dependencies, so what it lacks is not what we forgot.
EXTRAS = ("", "client", "data", "train", "search", "pgvector", "taxonomy", "report", "web")

# What the commands and classes of an extra are made of; it needs nothing but the extra.
PACKAGES = {
    "client": ["client"],
    "data": ["data"],
    "train": ["encoder", "evaluation", "runs", "training", "vectors"],
    "search": ["curation", "identification", "search"],
    "report": ["report"],
    "web": ["web"],
}

TEXTS = (".cff", ".html", ".ipynb", ".js", ".md", ".py", ".toml", ".yaml", ".yml")

# Imports what every install has, then tries each extra in a child of its own.
WALK = """
import importlib, importlib.metadata, json, os, pkgutil, sys
import numba, numpy, rich, threadpoolctl, torch, typer

def walk(hidden, extras, packages):
    class Without:
        def __init__(self, finder):
            self.finder = finder
        def __getattr__(self, name):
            return getattr(self.finder, name)
        def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
            if str(context.name).lower().replace("_", "-") in hidden:
                return []
            return getattr(self.finder, "find_distributions", lambda context: [])(context)
        def find_spec(self, name, path=None, target=None):
            return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)
    sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
    from happier.cli import app
    from happier.errors import HappierError, MissingExtraError
    found = {}
    import happier
    for _, module, _ in pkgutil.iter_modules(happier.__path__):
        if module not in ("__main__", "bench"):
            found[f"import happier.{module}"] = outcome(lambda: importlib.import_module(f"happier.{module}"))
    found["happier.Encoder"] = outcome(lambda: happier.Encoder)
    for path, command, extra in leaves(typer.main.get_command(app), ()):
        if set(extra.split(",")) <= extras or path[0] == "bench":
            continue  # everything is there: other tests run these commands; benchmarks run with what is there
        arguments = [os.devnull for p in command.params if p.param_type_name == "argument" and p.required]
        arguments += [s for p in command.params if p.param_type_name == "option" and p.required
                      for s in (p.opts[0], os.devnull)]
        found[" ".join(path)] = [extra, *outcome(lambda: app([*path, *arguments], standalone_mode=False))]
    for package in packages:
        home = importlib.import_module(f"happier.{package}")
        for _, module, _ in pkgutil.walk_packages(home.__path__, f"happier.{package}."):
            if not module.startswith("happier.search.pgvector"):
                found[f"within: {module}"] = outcome(lambda: importlib.import_module(module))
    return found

def outcome(call):
    try:
        call()
    except BaseException as error:
        return [type(error).__name__, str(error)]
    return ["", ""]

def leaves(command, path):
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from leaves(child, (*path, name))
    else:
        yield path, command, getattr(command.callback, "__wrapped__", command.callback).extra

results = {}
for name, (hidden, extras, packages) in json.load(sys.stdin).items():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(walk(set(hidden), set(extras), packages)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        results[name] = json.load(pipe)
print(json.dumps(results))
"""


def closure(extras):
    """Names of all distributions that an install with these extras has, and all extras that they include."""
    found, todo, included = set(), [(DISTRIBUTION, frozenset(extras))], set()
    while todo:
        name, wanted = todo.pop()
        name = re.sub(r"[-_.]+", "-", name).lower()
        if (name, wanted) in found:
            continue
        found.add((name, wanted))
        if name == DISTRIBUTION:
            included |= wanted
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        for line in requires:
            needed = Requirement(line)
            if any(
                needed.marker is None or needed.marker.evaluate({"extra": extra})
                for extra in (wanted or {""})
            ):
                todo.append((needed.name, frozenset(needed.extras)))
    return {name for name, _ in found}, included


@pytest.fixture(scope="module")
def installs():
    """What each install can import and run."""
    modules = {
        module: {re.sub(r"[-_.]+", "-", name).lower() for name in names}
        for module, names in packages_distributions().items()
    }
    ours = closure(["all"])[0]
    plans = {}  # hidden modules and distributions, the extras that are there, and what works with them
    for extra in EXTRAS:
        present, included = closure([extra] if extra else [])
        hidden = [m for m, names in modules.items() if names & ours and not names & present]
        plans[extra] = (hidden + sorted(ours - present), sorted(included), PACKAGES.get(extra, []))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WALK],
        input=json.dumps(plans),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_what_is_missing_is_named(installs, extra):
    commands = {name: found for name, found in installs[extra].items() if len(found) == 3}
    imports = {
        name: found for name, found in installs[extra].items() if name.startswith(("import", "happier"))
    }
    assert extra or len(commands) > 12, "the core install lacks something for nearly every command"
    for name, (needed, kind, message) in commands.items():
        assert kind == "MissingExtraError", (name, kind, message)
        assert message.endswith(f"pip install '{DISTRIBUTION}[{needed}]'"), (name, message)
    for name, (kind, message) in imports.items():
        assert kind in ("", "MissingExtraError"), (name, kind, message)
    assert imports["import happier.losses"][0] == imports["import happier.data"][0] == ""
    if extra == "":
        assert imports["happier.Encoder"][1].endswith("[train]'")
    if extra == "search":
        more = {f"import happier.{name}" for name in ("client", "demo", "fit", "report")}
        assert {message for name, (_, message) in imports.items() if name not in more} == {""}
        assert imports["import happier.fit"][1].endswith("[report,search]'")


@pytest.mark.slow
@pytest.mark.parametrize("extra", PACKAGES)
def test_an_extra_is_enough_for_what_it_is_for(installs, extra):
    within = {name: found for name, found in installs[extra].items() if name.startswith("within: ")}
    assert len(within) > 0
    assert {name: message for name, (kind, message) in within.items() if kind} == {}


def test_another_project_of_the_same_name_is_reported(tmp_path, monkeypatch, recwarn):
    monkeypatch.syspath_prepend(tmp_path)
    warn_of_namesake()
    assert not recwarn.list
    foreign = tmp_path / "happier-1.0.dist-info"
    foreign.mkdir()
    (foreign / "METADATA").write_text("Metadata-Version: 2.1\nName: happier\nVersion: 1.0\n")
    (foreign / "RECORD").write_text("happier/__init__.py,,\n")
    with pytest.warns(UserWarning, match="pip uninstall happier happier-retrieval"):
        warn_of_namesake()


def test_no_message_names_another_distribution():
    """``pip install happier`` would install somebody else's code formatter."""
    root = Path(__file__).parents[2]
    files = [path for path in root.glob("*") if path.is_file()]
    for folder in (".github", "docs", "examples", "experiments", "src"):
        files += [path for path in root.glob(f"{folder}/**/*") if path.suffix in TEXTS]
    assert {"Dockerfile", "CHANGELOG.md", "errors.py", "test.yml", "app.js"} <= {path.name for path in files}
    wrong = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in files
        for line in path.read_text().splitlines()
        if re.search(r"pip install[^`\n]*\bhappier(?!-retrieval)\b|[\"']happier\[", line)
        and "pip uninstall happier" not in line
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("outer", "inner", "package", "named"),
    [
        ("search", "data", "pandas", "search"),  # both bring it: the command needs all of its extra
        ("data", "report", "jinja2", "report"),  # an option needs more than its command
        ("train", "loggers", "wandb", "loggers"),
        ("train", "loggers", "mlflow", "loggers"),
        ("train", "loggers", "lightning", "train"),  # the command itself lacks it
        ("search", "data", "unheard_of", "search"),
    ],
)
def test_the_extra_that_brings_the_package_is_named(outer, inner, package, named):
    with (
        pytest.raises(MissingExtraError, match=rf"{package}.*\[{named}\]"),
        needs_extra(outer),
        needs_extra(inner),
    ):
        raise ModuleNotFoundError(name=package)
