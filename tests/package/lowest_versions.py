"""Test metrics and losses with the oldest versions that pyproject.toml allows: ``make test-lowest``."""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

# What the tests themselves need, beside the core.
TEST_PACKAGES = ["pytest", "hypothesis"]
TESTS = [
    "tests/metrics",
    "tests/package/test_taxonomy.py",
    "tests/losses/test_hap.py",
    "tests/losses/test_bound.py",
    "tests/evaluation/test_errors.py",
]


def main() -> None:
    """Make an environment with every ``>=`` of the core turned into ``==``, and test in it."""
    root = Path(__file__).parents[2]
    core = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    lowest = [re.sub(">=", "==", line) for line in core]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder, "bin", "python"))
        print(*lowest, flush=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *lowest, *TEST_PACKAGES], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(root)], check=True)
        # Old versions warn about their own future; only ours count here.
        command = [python, "-m", "pytest", "-q", "-W", "default", *TESTS]
        sys.exit(
            subprocess.run(
                command, cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
            ).returncode
        )


if __name__ == "__main__":
    main()
