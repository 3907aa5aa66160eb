"""What is shipped: the wheel is complete and works outside of the clone; files for hosts are well-formed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy: setuptools writes beside what it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    tracked = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not tracked:
        pytest.skip("the sources are not a git clone")
    for name in tracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [BIN / "python", "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").iterdir()
    return built, {name.removeprefix("src/") for name in tracked}


@pytest.mark.slow
def test_the_wheel_is_complete(wheel):
    path, tracked = wheel
    assert path.name.startswith("happier_retrieval-")
    with zipfile.ZipFile(path) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == tracked
    done = subprocess.run(
        [BIN / "twine", "check", "--strict", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_wheel_works_outside_of_the_clone(wheel, tmp_path):
    with zipfile.ZipFile(wheel[0]) as archive:
        archive.extractall(tmp_path / "installed")
    code = (
        "import happier, sys; from happier.cli import main;"
        "assert happier.__file__.startswith(sys.argv[1]), happier.__file__;"
        "sys.argv[1:] = ['train', '--show', 'recipe=sop', 'data.manifest=m.parquet']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "installed")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "resnet50" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", "Dockerfile"],
        ["zizmor", "--offline", "--quiet", "--config", ".github/zizmor.yml", ".github"],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", ".github/workflows/*.yml"],
        ["check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/*.yml"],
        ["check-jsonschema", "--builtin-schema", "vendor.dependabot", ".github/dependabot.yml"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"],
        ["check-jsonschema", "--builtin-schema", "vendor.citation-file-format", "CITATION.cff"],
    ],
    ids=lambda command: f"{command[0]}-{Path(command[-1]).parent.name or command[-1]}",
)
def test_files_for_hosts_are_well_formed(command):
    program, *arguments = command
    expanded = [str(p) for a in arguments for p in (sorted(ROOT.glob(a)) if "*" in a else [a])]
    done = subprocess.run([BIN / program, *expanded], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome", None])
def test_make_browser_accepts_what_the_tests_can_drive(name, tmp_path):
    if name is not None:
        (tmp_path / name).touch(mode=0o755)
    command = [shutil.which("make"), "--no-print-directory", "browser"]
    done = subprocess.run(
        command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert ("No Chromium found" in done.stdout) == (name is None), done.stdout
