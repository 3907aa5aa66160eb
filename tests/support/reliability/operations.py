"""Every command that writes: what it starts from, how it is given, and how its outcome is read."""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reliability.box import MILVUS, Box, Snapshot
from reliability.database import DatabaseBox
from reliability.served import (
    RecordedElsewhere,
    add_over_network,
    check_and_fix,
    copy,
    decide,
    show_thumbnails,
)

# Imported once in the process that forks; nothing of it may start a thread when it is imported.
IMPORTS = (
    "faiss",
    "happier.cli",
    "happier.data.check",
    "happier.data.importers",
    "happier.encoder",
    "happier.encoder.keras_resnet",
    "happier.fit",
    "happier.runs.comparison",
    "happier.evaluation.table",
    "happier.evaluation.terminal",
    "happier.report",
    "happier.conf",
    "happier.curation.suspects",
    "happier.curation.taxonomy",
    "happier.runs",
    "happier.search",
    "happier.training.compose",
    "happier.training.loop",
    "happier.web.explorer",
    "matplotlib.pyplot",
    "milvus_lite.server_manager",
    "networkx",
    "onnx",
    "onnxscript",
    "openTSNE",
    "pandas",
    "pymilvus",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "PIL.BmpImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PpmImagePlugin",
    "pgvector.psycopg",
    "psycopg",
    "pydantic.type_adapter",
    "sympy.combinatorics",
    "timm",
    "torch.onnx",
)

ENGINES = ("flat", "hnsw", "milvus", "pgvector")


@dataclass(frozen=True)
class Operation:
    """A command that writes.

    Attributes:
        name: as the documentation calls it.
        words: the command; or a function and its arguments.
        before: commands that make what it starts from.
        observe: what a user can see of the target, as JSON; run in a fork.
        again: what to run after a crash, by default the same command.
        target: which thing it changes: commands of one target are tried beside each other.
        any_state: what a crash leaves need not be the old state or the new: the next command finishes it.
    """

    name: str
    words: tuple[object, ...]
    observe: Callable[[], Any]
    before: tuple[tuple[object, ...], ...] = ()
    again: tuple[object, ...] = ()
    target: str = ""
    any_state: bool = False

    @property
    def rerun(self) -> tuple[object, ...]:
        return self.again or self.words


def _load_numba() -> None:
    """What numba loads at the first call of a compiled function; it starts no thread."""
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


class Workshop:
    """Images, a table and a small trained model, and every operation on them."""

    def __init__(self, root: Path) -> None:
        import torch

        torch.set_num_threads(1)
        for name in IMPORTS:
            importlib.import_module(name)
        _load_numba()
        gc.freeze()  # forks that collect garbage would copy all that was imported
        self.box = Box(root)
        self.database = DatabaseBox()
        self.images = self.box.root / "images"
        self.cache: dict[tuple[tuple[object, ...], ...], Snapshot] = {}
        self.turns: dict[Any, Any] = {}
        self.changes: dict[Any, Any] = {}
        self.expected: dict[Any, Any] = {}
        self._make_images()
        self._register_source()
        self._register_logger()
        self.operations = {operation.name: operation for operation in self._operations()}

    def before(self, operation: Operation) -> Snapshot:
        """The box as it is before an operation."""
        steps = operation.before
        uses_database = any(word is self.database for step in (*steps, operation.words) for word in step)
        if uses_database:
            self.database.start()
        self.box.database = self.database if uses_database else None
        return self._after(steps)

    def _after(self, steps: tuple[tuple[object, ...], ...]) -> Snapshot:
        if steps not in self.cache:
            if steps:
                self.box.put(self._after(steps[:-1]))
                outcome = self.box.run(*steps[-1])
                assert outcome.code == 0, (steps[-1], outcome)
                self.cache[steps] = self.box.take()
            else:
                self.cache[steps] = Snapshot(())
        return self.cache[steps]

    def close(self) -> None:
        """End what was started for the operations."""
        self.database.close()

    def _make_images(self) -> None:
        from shapes import make_shapes

        from happier.data import Manifest

        def make() -> None:
            make_shapes(self.images, items=4, views=3)
            lines = ["path,kind,item"]
            lines += [
                f"{file.name},k{file.name[0]},i{file.name[2]}" for file in sorted(self.images.glob("*.png"))
            ]
            (self.box.root / "table.csv").write_text("\n".join(lines))
            rows = Manifest.read(self.images / "manifest.parquet")
            rows.take(np.flatnonzero(rows.table["item"] != "i0")).write(self.images / "fewer.parquet")
            table = rows.table.assign(path=[str(self.images / name) for name in rows.table["path"]])
            table.loc[3, "path"] = "gone.png"
            Manifest(table, levels=rows.levels, root=self.images).write(self.images / "faulty.parquet")
            for name, groups in (("tree.csv", "aabb"), ("other_tree.csv", "abab")):
                lines = [f"i{item},{group}" for item, group in enumerate(groups)]
                (self.box.root / name).write_text("\n".join(["item,group", *lines]))

        outcome = self.box.fork(make)
        assert outcome.code == 0, outcome.err

    def _register_logger(self) -> None:
        from happier.training.loggers import LOGGERS

        LOGGERS["mlflow"] = RecordedElsewhere  # type: ignore[index]

    def _register_source(self) -> None:
        from happier.data.fetching import DATASETS, DatasetEntry

        DATASETS["tiny"] = DatasetEntry(
            "tiny", ("kind", "item"), None, None, "happier data fetch tiny", "reliability.source"
        )

    def _operations(self) -> list[Operation]:
        return [
            *self._data(),
            *self._labels(),
            *self._training(),
            *self._using(),
            *self._indexing(),
            *self._fitting(),
            *self._serving(),
        ]

    def decision(self, kind: int, class_path: str) -> tuple[object, ...]:
        """A decision about an image of a kind: its class is another."""
        label = f"k{kind}/i3"
        return (decide, self.box.path / "corrections.csv", f"{kind}_3_0.png", label, class_path)

    def _labels(self) -> list[Operation]:
        here, out = self.box.path, self.box.path / "out.parquet"
        table = self.box.root / "table.csv"
        flat = ("data", "import", "csv", table, "-o", out, "--levels", "item", "--root", self.images)
        tree, trees = here / "tree.parquet", ("data", "taxonomy", out)
        from_table = ("--from", "table", "-o", tree)
        applied = here / "applied.parquet"
        apply = ("data", "apply", self.images / "manifest.parquet", here / "corrections.csv", "-o", applied)
        faulty = here / "faulty.parquet"
        return [
            Operation(
                "taxonomy",
                (*trees, self.box.root / "tree.csv", *from_table),
                lambda: manifest(tree),
                (flat, (*trees, self.box.root / "other_tree.csv", *from_table)),
            ),
            Operation(
                "apply",
                apply,
                lambda: manifest(applied),
                (self.decision(0, "k1/i3"), apply, self.decision(1, "k2")),
                target="corrections",
            ),
            Operation(
                "check --fix",
                (check_and_fix, faulty),
                lambda: manifest(here / "faulty.fixed.parquet"),
                ((copy, self.images / "faulty.parquet", faulty),),
            ),
            Operation(
                "tree --html",
                ("data", "tree", self.images / "manifest.parquet", "--html", here / "tree.html"),
                lambda: written(here / "tree.html"),
            ),
        ]

    def _serving(self) -> list[Operation]:
        here = self.box.path
        corrections, thumbnails = here / "corrections.csv", here / "thumbnails.sqlite"
        built = (self.train_words(), self._build_words("flat", "test"))
        return [
            Operation(
                "decide",
                self.decision(1, "k2"),
                lambda: written(corrections),
                (self.decision(0, "k1/i3"),),
                target="corrections",
            ),
            Operation(
                "thumbnails",
                (show_thumbnails, thumbnails, self.images, "0_3_*.png"),
                lambda: "a cache",
                ((show_thumbnails, thumbnails, self.images, "1_3_*.png"),),
                target="thumbnails",
            ),
            Operation(
                "add over the network",
                (add_over_network, here / "index", here / "added", self.images / "0_0_0.png", "k0/i0"),
                lambda: indexed(here / "index"),
                built,
                target="index flat",
            ),
        ]

    def fit_words(self, table: str) -> tuple[object, ...]:
        """``happier fit`` of a manifest, with a tiny network."""
        tiny = (
            "model.backbone=test_resnet",
            "model.pretrained=null",
            "model.hidden=16",
            "model.dim=16",
            "transform.size=32",
            "transform.normalize=imagenet",
            "training.steps=3",
            "data.workers=0",
        )
        return ("fit", self.images / table, "-o", self.box.path / "fit", "--train", "head", "--json", *tiny)

    def _fitting(self) -> list[Operation]:
        return [
            Operation(
                "fit",
                self.fit_words("manifest.parquet"),
                lambda: fitted(self.box.path / "fit"),
                (self.fit_words("fewer.parquet"),),
                target="fit",
                any_state=True,
            ),
        ]

    def _data(self) -> list[Operation]:
        here, table = self.box.path, self.box.root / "table.csv"
        out, split = here / "out.parquet", here / "split.parquet"
        levels = ("--levels", "kind,item", "--root", self.images)
        old = ("data", "import", "csv", table, "-o", out, "--levels", "item", "--root", self.images)
        imported = ("data", "import", "csv", table, "-o", out, *levels)
        cache = ("--cache", here / "cache")
        return [
            Operation("import", imported, lambda: manifest(out), (old,), target="manifest"),
            Operation(
                "import CSV",
                ("data", "import", "csv", table, "-o", out.with_suffix(".csv"), *levels),
                lambda: manifest(out.with_suffix(".csv")),
            ),
            Operation(
                "split",
                ("data", "split", out, "-o", split, "--seed", 1),
                lambda: manifest(split),
                (imported, ("data", "split", out, "-o", split, "--seed", 0)),
                target="manifest",
            ),
            Operation(
                "fetch",
                ("data", "fetch", "tiny", *cache),
                lambda: fetched(here / "cache"),
                target="cache",
            ),
            Operation(
                "fetch with validation",
                ("data", "fetch", "tiny", "--val", 0.5, *cache),
                lambda: fetched(here / "cache"),
                target="cache",
            ),
        ]

    def train_words(self, run: str = "run", epochs: int = 2) -> tuple[object, ...]:
        return (
            "train",
            "recipe=small",
            f"run={self.box.path / run}",
            f"data.manifest={self.images / 'manifest.parquet'}",
            f"training.epochs={epochs}",
            "training.batch_size=16",
            "training.tensorboard=false",
            "evaluation.every=1",
            "data.workers=0",
            "--json",
        )

    def logged_words(self, epochs: int = 2) -> tuple[object, ...]:
        """Train with a logger, which gives the run an id."""
        *words, last = self.train_words(epochs=epochs)
        return (*words, "training.logger=mlflow", last)

    def _training(self) -> list[Operation]:
        run = self.box.path / "run"
        return [
            Operation("train", self.train_words(), lambda: trained(run), target="run", any_state=True),
            Operation(
                "train with a logger",
                self.logged_words(),
                lambda: [*trained(run), written(run / "logger.json")],
                any_state=True,
            ),
        ]

    def _using(self) -> list[Operation]:
        here, items = self.box.path, self.images / "manifest.parquet"
        run, trained_run = here / "run", (self.train_words(),)
        embed = ("embed", run, items, "-o", here / "embeddings", "--split")
        report = ("report", run, "-o", here / "report", "--no-figures", "--resamples", 10, "--title")
        evaluate = ("evaluate", run, "--resamples", 0)
        suspects = here / "suspects.csv"
        return [
            Operation(
                "features",
                ("embed", run, items, "-o", here / "features", "--features", "--split", "test"),
                lambda: features(here / "features"),
                trained_run,
                target="features",
            ),
            Operation(
                "suspects",
                ("data", "suspects", run, "-k", 3, "-o", suspects),
                lambda: written(suspects),
                trained_run,
                target="run",
            ),
            Operation(
                "embed", (*embed, "test"), lambda: embeddings(here / "embeddings"), trained_run, target="run"
            ),
            Operation(
                "embed over another",
                (*embed, "test"),
                lambda: embeddings(here / "embeddings"),
                (*trained_run, (*embed, "train")),
                target="run",
            ),
            Operation("evaluate", evaluate, lambda: figures(run), trained_run, target="run"),
            Operation(
                "evaluate into files",
                (
                    *evaluate,
                    "--json",
                    here / "x.json",
                    "--per-query",
                    here / "x.parquet",
                    "--latex",
                    here / "x.tex",
                ),
                lambda: written(here / "x.json", here / "x.parquet", here / "x.tex"),
                trained_run,
                target="run",
                any_state=True,
            ),
            Operation(
                "report",
                (*report, "new title"),
                lambda: page(here / "report"),
                (*trained_run, (*report, "old title")),
                target="run",
            ),
            Operation(
                "export",
                ("export", run, here / "x.onnx"),
                lambda: network(here / "x.onnx"),
                trained_run,
                target="run",
            ),
        ]

    def _build_words(self, engine: str, *split: str) -> tuple[object, ...]:
        here, items = self.box.path, self.images / "manifest.parquet"
        uri: tuple[object, ...] = ()
        if engine == "milvus":
            uri = ("--uri", here / MILVUS)
        elif engine == "pgvector":
            uri = ("--uri", self.database, "--option", "view=photos")
        build = ("index", here / "run", items, "-o", here / "index", "--engine", engine, *uri)
        return (*build, "--split", *split)

    def _indexing(self) -> list[Operation]:
        here, items = self.box.path, self.images / "manifest.parquet"
        run, index = here / "run", here / "index"
        found = []
        for engine in ENGINES:
            build = self._build_words(engine)
            first = (self.train_words(), (*build, "test"))
            target = f"index {engine}"
            found += [
                Operation(
                    f"index build, {engine}",
                    (*build, "test"),
                    lambda: indexed(index),
                    first[:1],
                    target=target,
                ),
                Operation(
                    f"index --add, {engine}",
                    ("index", run, items, "-o", index, "--split", "train", "--add"),
                    lambda: indexed(index),
                    first,
                    target=target,
                ),
                Operation(
                    f"unindex, {engine}",
                    ("unindex", index, "0_3_0.png", "1_3_1.png"),
                    lambda: indexed(index),
                    first,
                    target=target,
                ),
                Operation(
                    f"index --overwrite, {engine}",
                    (*build, "train", "--overwrite"),
                    lambda: indexed(index),
                    first,
                    target=target,
                ),
            ]
        return found


# What a user can see. Each runs in a fork; an error of ours is a text, anything else a fault.


def digest(*parts: object) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else str(part).encode())
    return found.hexdigest()[:16]


def manifest(path: Path) -> Any:
    from happier.data import Manifest

    if not path.exists():
        return "absent"
    rows = Manifest.read(path)
    return [len(rows), list(rows.levels), digest(rows.table.to_csv(index=False))]


def fetched(cache: Path) -> Any:
    from happier.data import Manifest
    from happier.data.fetching import fetched_manifest

    path = fetched_manifest("tiny", cache=cache)
    if path is None:
        return "absent"
    rows = Manifest.read(path)
    return [len(rows), digest(*(file.read_bytes() for file in rows.files()))]


def trained(run: Path) -> Any:
    from happier.encoder import Encoder

    kept = [_logged(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [Encoder.from_pretrained(run).fingerprint, digest(json.dumps(kept))]


def _logged(line: str) -> Any:
    """What does not differ from run to run of a line; one that was cut off is a text."""
    try:
        values = json.loads(line)
    except ValueError:
        return line
    return {key: values[key] for key in ("step", "epoch", "loss", "H-AP") if key in values}


def embeddings(folder: Path) -> Any:
    from happier.encoder.embeddings import Embeddings

    if not (folder / "embeddings.json").exists():
        return "absent"
    found = Embeddings.read(folder)
    return [len(found.vectors), digest(np.asarray(found.vectors).tobytes(), found.manifest.table.to_csv())]


def features(folder: Path) -> Any:
    from happier.vectors.store import VectorStore

    store = VectorStore(folder, "features")
    if not store.exists():
        return "absent"
    found = store.read()
    return [len(found.vectors), digest(np.asarray(found.vectors).tobytes(), found.manifest.table.to_csv())]


def figures(run: Path) -> Any:
    from happier.evaluation.options import EvaluationOptions
    from happier.runs import read_run
    from happier.runs.comparison import compare_runs

    found = compare_runs([read_run(str(run))], EvaluationOptions(), resamples=0)
    summary = found.evaluations[0].results[0].summary
    return {name: round(float(value), 9) for name, value in sorted(summary.items()) if value == value}


def written(*paths: Path) -> Any:
    return [digest(path.read_bytes()) if path.exists() else "absent" for path in paths]


def page(folder: Path) -> Any:
    if not folder.exists():
        return "absent"
    text = (folder / "index.html").read_text() if (folder / "index.html").exists() else ""
    title = next((title for title in ("old title", "new title") if title in text), "none")
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if ".part" not in str(file))
    return [title, "</html>" in text, len(names), digest(*names)]


def network(path: Path) -> Any:
    import onnx

    if not path.exists():
        return "absent"
    model = onnx.load(path)
    onnx.checker.check_model(model)
    return len(model.graph.node)


def fitted(folder: Path) -> Any:
    from happier.encoder import Encoder

    models = [Encoder.from_pretrained(folder / loss).fingerprint for loss in ("happier", "nsm")]
    return [manifest(folder / "manifest.parquet"), models, indexed(folder / "index")]


def indexed(folder: Path) -> Any:
    from happier.errors import SearchError
    from happier.search import Index

    try:
        index = Index.open(folder)
    except SearchError as error:
        if str(error).startswith("no index at"):
            return "absent"
        raise
    vectors = np.asarray(index.vectors)
    rows = sorted((item, digest(vectors[row].tobytes())) for row, item in enumerate(index.ids))
    hits = {item: index.search_id(item, k=3)[0].id for item, _ in rows[:4]}
    classes = digest(sorted(zip(index.ids, index.class_paths, strict=True)))
    calibration = index.head.calibration
    index.close()
    return [len(rows), digest(rows), classes, hits, digest(calibration)]
