"""Test with the oldest versions that pyproject.toml allows, of all extras: ``make test-lowest``.

Folders or files of tests may be given, to run these only.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# What the tests themselves need.
TEST_PACKAGES = ["pytest", "hypothesis", "scikit-learn"]
TESTS = [
    "tests/metrics",
    "tests/losses",
    "tests/evaluation",
    "tests/storage",
    "tests/data",
    "tests/vectors",
    "tests/encoder",
    "tests/runs",
    "tests/search",
]
# Only wheels: an old version that must be compiled is not one that people can install.
WHEELS = ["--only-binary=:all:", "--no-binary=antlr4-python3-runtime"]


def main() -> None:
    """Resolve every ``>=`` to the lowest version that fits the others, install that, and test in it."""
    root = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python, found = str(Path(folder, "bin", "python")), Path(folder, "lowest.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
        uv = [python, "-m", "uv", "--quiet", "--native-tls", "pip"]
        lowest = ["--resolution=lowest-direct", "--extra=all", "--no-annotate", f"--output-file={found}"]
        subprocess.run(
            [*uv, "compile", *lowest, *WHEELS, "--python", python, "pyproject.toml"], check=True, cwd=root
        )
        print(found.read_text(), flush=True)
        install = [*uv, "install", "--python", python]
        subprocess.run([*install, "-r", found, *TEST_PACKAGES], check=True)
        subprocess.run([*install, "--no-deps", root], check=True)
        # Old versions warn about their own future; only ours count here.
        command = [python, "-m", "pytest", "-q", "-W", "default", "-m", "not slow", *(sys.argv[1:] or TESTS)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_CACHE_DIR": str(Path(folder, "numba"))}
        sys.exit(subprocess.run(command, cwd=root, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
