"""A manifest's taxonomy as one page: everything is inside it, nothing comes from the network."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from pathlib import Path

from markupsafe import Markup

from happier.data.check_classes import class_findings
from happier.data.class_tree import ClassTree
from happier.data.draw_tree import class_counts
from happier.data.manifest import Manifest
from happier.report.level_colours import css_variables
from happier.report.render import template_environment
from happier.storage.atomic import atomic_file

_MOST_OPEN = 400  # classes that are in view when the page opens


def write_taxonomy_page(manifest: Manifest, path: Path | str, *, name: str | None = None) -> Path:
    """Write the page.

    Args:
        manifest: its labels; no image is read.
        path: the file.
        name: of the data set; by default the manifest's own.

    Raises:
        DataError: the place cannot be written to.
    """
    path = Path(path)
    tree = ClassTree(manifest)
    classes = Counter(len(node.names) for node in tree)
    numbers = [classes[level] for level in range(1, len(tree.levels) + 1)]
    opened = sum(total <= _MOST_OPEN for total in accumulate(numbers))
    page = template_environment().get_template("tree.html.j2")
    text = page.render(
        title=name or manifest.name or path.stem,
        tree=tree,
        root=tree.root,
        classes=numbers,
        counts=class_counts,
        opened=opened,
        notes=[note for note in class_findings(manifest) if note.rows and not note.fault],
        colours=Markup(css_variables(len(tree.levels))),  # noqa: S704 (our own numbers)
    )
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
