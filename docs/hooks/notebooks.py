"""Notebooks of the documentation: run them (``make notebooks``), and show them as pages of the site.

The sources are ``docs/notebooks/*.py``, in cells that editors and Jupytext open. Beside each is the notebook
that it became when it ran, with its outputs; the site is made from those.
"""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


def sources() -> list[Path]:
    """Every notebook as text."""
    return sorted(FOLDER.glob("*.py"))


def run(source: Path, folder: Path | None = None) -> Any:
    """The notebook with the outputs of its cells, each run in order in a process of its own."""
    notebook = jupytext.read(source)
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    resources = {"metadata": {"path": str(folder or FOLDER)}}
    client = NotebookClient(
        notebook,
        timeout=600,
        startup_timeout=600,
        kernel_name="python3",
        resources=resources,
        coalesce_streams=True,
    )
    client.execute()
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            # What libraries log is about this machine.
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return notebook


def to_markdown(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                kind = "" if _is_transparent(pictures[picture]) else "{ .plot }"
                parts.append(f"![Output of the cell above]({picture}){kind}")
            elif text := output.get("text") or data.get("text/plain"):
                parts.append(f"``` {{ .text .output }}\n{text.rstrip()}\n```")
    link = f"[Open it as a notebook]({name}.ipynb), with these outputs, or run `docs/notebooks/{name}.py`."
    parts.insert(1, link)
    return "\n\n".join(parts) + "\n", pictures


def _is_transparent(picture: bytes) -> bool:
    """Whether the page shows through. Photographs on no ground fit both themes; a plot on white is turned."""
    with Image.open(io.BytesIO(picture)) as image:
        return bool(image.convert("RGBA").getpixel((0, 0))[3] == 0)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        page, pictures = to_markdown(nbformat.read(path, as_version=4), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_markdown(markdown: str, **page: Any) -> str:
    """Links to notebooks, which a code host shows, lead to their pages on the site."""
    del page
    return re.sub(r"(\]\([./]*notebooks/\w+)\.ipynb\)", r"\1.md)", markdown)


def main() -> None:
    """Run every notebook, or those that are named, and keep them with their outputs."""
    chosen = [source for source in sources() if not sys.argv[1:] or source.stem in sys.argv[1:]]
    for source in chosen:
        nbformat.write(run(source), source.with_suffix(".ipynb"))
        print(f"{source.stem}: {source.with_suffix('.ipynb').stat().st_size / 1024:.0f} KiB")  # noqa: T201


if __name__ == "__main__":
    main()
