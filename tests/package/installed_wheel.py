"""Install the wheel into an empty environment, extra by extra, and try each: ``make package``."""

import subprocess
import sys
import tempfile
from pathlib import Path

METRIC = """
import torch, happier
from happier.losses import HAPPIERLoss
vectors = torch.nn.functional.normalize(torch.randn(8, 4), dim=1)
labels = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, 3], [1, 3]])
assert happier.evaluate(vectors, labels).summary["queries"] == 8
HAPPIERLoss(4, 4)(vectors, labels).backward()
"""
# Each extra, and what works with it and not without it: a command, or code. Loggers are left out: MLflow has
# upper bounds that differ from the pins.
STEPS: dict[str, list[str] | str] = {
    "client": "import happier.client",
    "data": ["data", "list"],
    "train": ["train", "--show", "recipe=emoji"],
    "search": "import faiss, happier.search.index",
    "report": "import happier.report.write",
    "web": "import happier.web.server",
    "pgvector": "import happier.search.pgvector_server",
    "taxonomy": "from happier.data.taxonomies.inat import inat_table; inat_table()",
    "bench": "import cleanlab, playwright, ranx",
    "all": ["--version"],
}


def main() -> None:
    """Try the wheel in ``dist/``, beside the pins in constraints.txt."""
    root = Path(__file__).parents[2]
    (wheel,) = (root / "dist").glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python, happier = Path(folder, "bin", "python"), Path(folder, "bin", "happier")

        def install(what: str) -> None:
            constraints = ["-c", str(root / "constraints.txt")]
            subprocess.run(
                [python, "-m", "pip", "install", "--quiet", *constraints, what], check=True, cwd=folder
            )

        install(str(wheel))
        subprocess.run([python, "-c", METRIC], check=True, cwd=folder)
        refused = subprocess.run([happier, "train"], cwd=folder, capture_output=True, text=True, check=False)
        assert refused.returncode == 2, refused
        assert "happier-retrieval[train]" in refused.stderr, refused
        print("core: metrics and losses work, commands name their extra")
        for extra, step in STEPS.items():
            install(f"{wheel}[{extra}]")
            command = [python, "-c", step] if isinstance(step, str) else [happier, *step]
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
            print(f"{extra}: {step if isinstance(step, str) else 'happier ' + ' '.join(step)}")


if __name__ == "__main__":
    main()
