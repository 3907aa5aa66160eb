"""What a server and a person's editor do to files, as functions that run where a command would."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

TOKENS = """\
[anna]
token = "0123456789abcdef-anna"
role = "write"
expires = 2099-01-31

[ben]
token = "fedcba9876543210-ben"
"""


def decide(file: Path, image: str, label: str, class_path: str) -> None:
    """A decision in the explorer."""
    from happier.curation.corrections import Correction, CorrectionsFile

    print(CorrectionsFile(file).record(Correction(image, label, "wrong", class_path)))


def show_thumbnails(file: Path, folder: Path, pattern: str) -> None:
    """Small pictures in the explorer: kept ones, or made again."""
    from happier.web.images import decode, encode
    from happier.web.thumbnails import ThumbnailStore, picture_key

    store = ThumbnailStore(file)
    for path in sorted(folder.glob(pattern)):
        key = picture_key(path, 16)
        picture = store.get(key)
        if picture is None:
            picture = encode(decode(path.read_bytes(), name=path.name, about=16), 16)
            store.put(key, picture)
        print(path.name, hashlib.sha256(picture).hexdigest())
    store.close()


def add_over_network(index: Path, folder: Path, image: Path, class_path: str) -> None:
    """An image that is added through the server."""
    from happier.search import Index
    from happier.web.explorer import Explorer

    explorer = Explorer(Index.open(index), writes=folder)
    assert explorer.writer is not None
    print(explorer.writer.add("a", [image.read_bytes()], class_path, ())[1])


def show_tokens(file: Path) -> None:
    """The tokens that a server starts with."""
    from happier.web.tokens import read_tokens

    print(*read_tokens(file), sep="\n")


def write_text(file: Path, text: str) -> None:
    """A file that a person writes."""
    file.write_text(text)


def copy(source: Path, target: Path) -> None:
    """A file from elsewhere."""
    shutil.copyfile(source, target)


def check_and_fix(manifest: Path) -> None:
    """``happier data check --fix``, whose exit code 1 says that something was wrong."""
    from typer.main import get_command

    from happier.cli import data

    words = ["check", str(manifest), "--fix", "--workers", "1"]
    try:
        get_command(data.data_app)(words, standalone_mode=False)
    except SystemExit as end:
        sys.exit(0 if end.code == 1 else end.code)


def show_features(folder: Path) -> None:
    """Kept features, as a training gets them."""
    from happier.vectors.store import VectorStore

    stored = VectorStore(folder, "features").read()
    print(stored.manifest.table.to_csv(), hashlib.sha256(stored.vectors.tobytes()).hexdigest())


class RecordedElsewhere:
    """A logger whose server takes everything: what is tested is the file with the run's id there."""

    def __init__(self, run: object, known_as: str | None) -> None:
        self.version = known_as or "id-on-the-server"

    def log_hyperparams(self, settings: object) -> None:
        pass

    def log_metrics(self, values: object, step: int) -> None:
        pass

    def save(self) -> None:
        pass

    def finalize(self, status: str) -> None:
        pass
