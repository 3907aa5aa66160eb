"""``happier bench``: speed and memory side by side with the alternatives, as ratios."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from happier.cli import Commands, app
from happier.cli.options import AsJson

bench_app = Commands(
    no_args_is_help=True, help="Speed and memory, side by side with the alternatives, as ratios."
)
app.add_typer(bench_app, name="bench")


@bench_app.command("loss", extra="bench")
def bench_loss(
    sizes: Annotated[
        list[int] | None, typer.Option("--size", help="Batch size; may be repeated. [default: 256 1024 4096]")
    ] = None,
    depths: Annotated[
        list[int] | None,
        typer.Option("--levels", help="Levels of the tree; may be repeated. [default: 2 3 7]"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu (CPU time of one core) or cuda (GPU time).")] = "cpu",
    step: Annotated[
        bool, typer.Option(help="Also measure the loss's share of a ResNet-50 training step, on the CPU.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Time the ranking losses: kernel, chunked torch, the straightforward form, pytorch-metric-learning.

    Example: happier bench loss --size 256 --levels 2 --no-step
    """
    from rich.console import Console
    from rich.table import Table

    from happier.bench import loss as bench

    share = None
    with Console(stderr=True).status("starting") as status:
        found = list(
            bench.measure_losses(
                sizes or [256, 1024, 4096], depths or [2, 3, 7], device=device, status=status.update
            )
        )
        if step and device == "cpu":
            share = bench.measure_step(status=status.update)
    if as_json:
        from happier.storage.records import to_json

        typer.echo(to_json(bench.as_json(found, share)), nl=False)
        return
    how = "CPU time of one core" if device == "cpu" else "GPU time"
    table = Table(title=f"Forward and backward, d = {bench.DIM}, {how}")
    for title in ("loss", "batch", "levels", "form", "ms", "extra MiB", "times faster"):
        table.add_column(title, justify="left" if title in ("loss", "form") else "right")
    for entry in found:
        table.add_row(
            entry.loss,
            str(entry.batch),
            str(entry.levels),
            entry.form,
            f"{1000 * entry.seconds:,.1f}",
            "?" if entry.mebibytes is None else f"{entry.mebibytes:,.1f}",
            "" if entry.speedup is None else f"{entry.speedup:,.1f}",
            end_section=entry.form not in (bench.CUBE, bench.CHUNKED, bench.PML),
        )
    Console().print(table)
    if share:
        Console().print(
            f"Step of {share.backbone} at {share.size} px, batch {share.batch} (model timed on "
            f"{share.measured} images): model {share.model_seconds:.1f} s, "
            f"H-AP loss {1000 * share.loss_seconds:.1f} ms = {100 * share.share:.3f}% of the step"
        )


@bench_app.command("data", extra="bench")
def bench_data(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the manifest that is read.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Time reading images on one core, torchvision against PIL, and reading a manifest.

    Example: happier bench data
    """
    from rich.console import Console
    from rich.table import Table

    from happier.bench import data as bench

    with Console(stderr=True).status("starting") as status:
        found = bench.measure_images(status=status.update)
        status.update("manifest")
        seconds = bench.measure_manifest(rows)
    if as_json:
        from happier.storage.records import to_json

        typer.echo(to_json(bench.as_json(found, seconds, rows)), nl=False)
        return
    table = Table("task", "way", "images/s", "times faster", title="One core, CPU time")
    for entry in found:
        table.add_row(entry.task, entry.way, f"{entry.rate:,.1f}", f"{entry.ratio:.2f}")
    Console().print(table)
    for form, taken in seconds.items():
        Console().print(f"manifest of {rows:,} rows, {form}: read and checked in {taken:.3f} s")


@bench_app.command("evaluation", extra="bench")
def bench_evaluation(
    sizes: Annotated[
        list[str] | None, typer.Option("--size", help="sop or inat-full; may be repeated. [default: both]")
    ] = None,
    queries: Annotated[
        int, typer.Option(min=1, help="Number of queries to run against the whole gallery.")
    ] = 4096,
    others: Annotated[
        int, typer.Option(min=0, help="Images in the comparison with other libraries; 0 for none.")
    ] = 2000,
    floor: Annotated[bool, typer.Option(help="Compare with numpy's matrix product.")] = True,
    growth: Annotated[bool, typer.Option(help="Also measure the cost at N, 2N and 4N images.")] = True,
    large: Annotated[
        int, typer.Option(min=0, help="Also a gallery of this many images: time and memory.")
    ] = 0,
    on_disk: Annotated[
        int, typer.Option(min=0, help="Also a gallery of this many images on disk, in little memory (Linux).")
    ] = 0,
    ranks: Annotated[
        int, typer.Option(min=0, max=64, help="Also this many ranks under torchrun, one thread each.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Time exact evaluation: against the bare matrix product, as the gallery grows, against other libraries.

    Example: happier bench evaluation --size sop --queries 2048
    """
    from rich.console import Console
    from rich.table import Table

    from happier.bench import evaluation as bench
    from happier.errors import OptionError

    for name in sizes or ():
        if name not in bench.SIZES:
            raise OptionError(f"--size must be one of {list(bench.SIZES)}, got {name!r}")
    chosen = [bench.SIZES[name] for name in sizes or bench.SIZES]
    rows: list[bench.EvaluationSpeed] = []
    with Console(stderr=True).status("starting") as status:
        first, last = chosen[0], chosen[-1]
        for wanted, measure in (
            *((floor, partial(bench.measure_floor, size, queries)) for size in chosen),
            (growth, partial(bench.measure_growth, last, min(queries, 2048))),
            (large, partial(bench.measure_large, first, large, queries)),
            (on_disk, partial(bench.measure_on_disk, first, on_disk, queries)),
            (ranks, partial(bench.measure_ranks, first, queries, ranks)),
            (others, partial(bench.measure_others, others)),
        ):
            if wanted:
                rows += measure(status=status.update)
        difference = bench.measure_exactness(status=status.update)
    if as_json:
        from happier.storage.records import to_json

        typer.echo(to_json(bench.as_json(rows, difference)), nl=False)
        return
    table = Table(title=f"Exact evaluation, d = {bench.DIM}")
    for title in ("what", "size", "queries", "ms a query", "ratio", ""):
        table.add_column(title, justify="left" if title in ("what", "") else "right")
    for row in rows:
        measured = row.milliseconds == row.milliseconds  # memory has neither time nor ratio
        table.add_row(
            row.what,
            row.size,
            f"{row.queries:,}",
            f"{row.milliseconds:.3f}" if measured else "",
            f"{row.ratio:.2f}" if measured else "",
            row.note,
        )
    Console().print(table)
    Console().print(
        f"Largest difference of any metric, compiled kernel against plain float64: {difference:.1e}"
    )


@bench_app.command("search", extra="bench,search")
def bench_search(
    sizes: Annotated[
        list[int] | None, typer.Option("--size", help="Vectors; may be repeated. [default: 100000 1000000]")
    ] = None,
    dim: Annotated[int, typer.Option(min=8, help="Dimensions of a vector.")] = 512,
    engines: Annotated[
        list[str] | None,
        typer.Option(
            "--engine", help="flat, hnsw, ivfpq or milvus (milvus-lite); may be repeated. [default: all]"
        ),
    ] = None,
    uris: Annotated[
        list[str] | None,
        typer.Option("--uri", help="Also this Milvus server, or PostgreSQL with pgvector; may be repeated."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for programs, one line per result.")
    ] = False,
) -> None:
    """Measure the speed of the search engines, and their recall@10 against exact search.

    Example: happier bench search --size 20000 --engine flat --engine hnsw
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from happier.bench import search as bench

    table = Table(title=f"Search, {dim} dimensions, queries per second and recall@10; in a quarter")
    speeds = ("one at a time", f"{bench.BATCH} at a time", "recall@10")
    for title in ("vectors", "engine", *speeds, *speeds, "build s", "bytes/vector"):
        table.add_column(title, justify="left" if title == "engine" else "right")
    with Console(stderr=True).status("starting") as status:
        found = bench.bench_search(
            sizes=sizes or (100_000, 1_000_000),
            dim=dim,
            engines=bench.LOCAL if engines is None else engines,
            uris=uris or (),
            status=status.update,
        )
        for one in found:
            if as_json:
                typer.echo(json.dumps(asdict(one)))
            table.add_row(
                f"{one.vectors:,}",
                one.engine,
                *(
                    text
                    for speed in (one.whole, one.branch)
                    for text in (f"{speed.single:,.1f}", f"{speed.batched:,.1f}", f"{speed.recall:.3f}")
                ),
                f"{one.build_seconds:,.1f}",
                "" if one.bytes_per_vector is None else f"{one.bytes_per_vector:,.0f}",
            )
    if not as_json:
        Console().print(table)


@bench_app.command("serve", extra="bench,web")
def bench_serve(
    index: Annotated[
        Path | None, typer.Argument(help="Directory of an index. [default: one of drawn images]")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=1000, help="Concurrent clients.")] = 100,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="Duration in seconds.")] = 30.0,
    max_requests: Annotated[int, typer.Option(min=1, help="Stop early after this many requests.")] = 100_000,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Server processes.")] = 1,
    before: Annotated[
        Path | None,
        typer.Option(help="src folder of another checkout, whose server gets the same load, in turns."),
    ] = None,
    by_id: Annotated[
        int | None,
        typer.Option(
            min=100, help="Search by id only; without INDEX, over this many random vectors with HNSW."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a steady load on the explorer on this machine: latency, errors, memory.

    Example: happier bench serve --clients 20 --seconds 10
    """
    import os
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from happier.bench.serve import bench_serve as hold

    with Console(stderr=True).status("starting") as status:
        loads = hold(
            index,
            clients=clients,
            seconds=seconds,
            max_requests=max_requests,
            processes=workers,
            before=before,
            by_id=by_id,
            status=status.update,
        )
    if as_json:
        values = [{**asdict(load), "rate": load.rate, "growth": load.growth} for load in loads]
        typer.echo(json.dumps(values))
        return
    console = Console()
    for load in loads:
        table = Table(title=f"{load.server}: {load.clients} clients for {load.seconds:.0f} s on 127.0.0.1")
        for title in ("requests", "number", "p50 ms", "p99 ms"):
            table.add_column(title, justify="left" if title == "requests" else "right")
        for kind, (count, p50, p99) in load.by_kind.items():
            table.add_row(kind, f"{count:,}", f"{p50:,.0f}", f"{p99:,.0f}")
        table.add_row("all", f"{load.requests:,}", f"{load.p50:,.0f}", f"{load.p99:,.0f}")
        console.print(table)
        console.print(
            f"{load.rate:,.0f} requests/s, {load.errors} errors, {load.busy} rejected as busy; memory "
            f"{load.memory[0]:,.0f} to {load.memory[-1]:,.0f} MiB, {load.growth:+,.1f} in the second half"
        )
    if len(loads) > 1:
        first, last = loads[0], loads[-1]
        console.print(f"{last.rate / first.rate:.1f} x the requests/s, p99 {last.p99 / first.p99:.2f} x")
    console.print(f"load average {os.getloadavg()[0]:.1f}")


@bench_app.command("page", extra="bench,web")
def bench_page(
    index: Annotated[
        Path | None, typer.Argument(help="Directory of an index. [default: one of drawn images]")
    ] = None,
    times: Annotated[int, typer.Option(min=1, max=199, help="Searches to open.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Time from opening a search in the browser to its first result; needs playwright and Chromium.

    Example: happier bench page --times 5
    """
    import os
    from dataclasses import asdict

    from rich.console import Console

    from happier.bench.page import bench_page as measure

    with Console(stderr=True).status("starting") as status:
        found = measure(index, times=times, status=status.update)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    typer.echo(
        f"{found.images:,} images, {found.opened} searches: first result after {found.result:.0f} ms, "
        f"its picture after {found.picture:.0f} ms (medians; {found.fastest:.0f} to {found.slowest:.0f} ms); "
        f"a page of one picture and nothing else: {found.floor:.0f} ms; load average {os.getloadavg()[0]:.1f}"
    )


@bench_app.command("soak", extra="bench,web")
def bench_soak(
    minutes: Annotated[float, typer.Option(min=0.05, max=600, help="Duration in minutes.")] = 5.0,
    clients: Annotated[int, typer.Option(min=1, max=1000, help="Concurrent clients.")] = 20,
    workers: Annotated[int, typer.Option(min=2, max=64, help="Server processes.")] = 2,
    images: Annotated[int, typer.Option(min=100, help="Images in the drawn catalogue.")] = 400,
    as_json: AsJson = False,
) -> None:
    """Search while images come and go and processes are killed; compare each answer with exact search.

    Exit code 1 if an answer was wrong, a request failed or an image was lost.

    Example: happier bench soak --minutes 5
    """
    import os
    from dataclasses import asdict

    from rich.console import Console

    from happier.bench.soak import soak

    with Console(stderr=True).status("starting") as status:
        found = soak(minutes=minutes, clients=clients, processes=workers, images=images, status=status.update)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        typer.echo(
            f"{found.minutes:.1f} minutes, {found.clients} clients, {workers} processes, load average "
            f"{os.getloadavg()[0]:.1f}\n"
            f"{found.requests:,} requests ({found.requests / found.minutes / 60:,.0f}/s), {found.checked:,} "
            f"rankings checked, {found.generations} states of the index\n"
            f"{found.added} images added, {found.removed} removed, {found.kills} processes killed, "
            f"{found.repeated} requests repeated because their process was killed\n"
            f"{found.wrong} wrong answers, {found.failed} failed requests, {found.lost} images lost\n"
            f"p50 {found.p50:,.0f} ms, p99 {found.p99:,.0f} ms; a change was seen after {found.lag:.2f} s at "
            "most\n"
            f"memory {found.memory[0]:,.0f} MiB after a tenth of the time, {found.memory[-1]:,.0f} at the end"
        )
        for line in found.faults:
            typer.echo(line)
    if found.wrong or found.failed or found.lost:
        raise typer.Exit(1)


@bench_app.command("train", extra="bench")
def bench_train(
    batch_size: Annotated[int, typer.Option(min=8, max=256, help="Images per step.")] = 64,
    steps: Annotated[int, typer.Option(min=2, help="Steps to measure.")] = 12,
    backbone: Annotated[str, typer.Option(help="Any timm model.")] = "tf_efficientnet_lite0",
    as_json: AsJson = False,
) -> None:
    """Time the training loop against the bare forward and backward pass of the same network.

    Example: happier bench train --steps 12
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from happier.bench.train import measure_training

    with Console(stderr=True).status("starting") as status:
        rows = measure_training(batch_size=batch_size, steps=steps, backbone=backbone, status=status.update)
    if as_json:
        typer.echo(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows]))
        return
    table = Table("images", "loop", "bare network", "ratio", title=f"{backbone}, images/s of CPU time")
    for row in rows:
        table.add_row(row.what, f"{row.loop:.1f}", f"{row.bare:.1f}", f"{row.ratio:.3f}")
    Console().print(table)


@bench_app.command("head", extra="bench")
def bench_head(
    features: Annotated[int, typer.Option(min=20, help="Features, each of 2,048 dimensions.")] = 60_000,
    batch_size: Annotated[int, typer.Option(min=8, help="Features per step.")] = 1024,
    as_json: AsJson = False,
) -> None:
    """Time an epoch of HAPPIER on kept features, with each kind of head, in fp32 and bf16.

    Example: happier bench head --features 60000
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from happier.bench.train import measure_heads

    with Console(stderr=True).status("starting") as status:
        rows = measure_heads(features=features, batch_size=batch_size, status=status.update)
    if as_json:
        typer.echo(json.dumps([{**asdict(row), "epoch_seconds": row.epoch_seconds} for row in rows]))
        return
    title = f"HAPPIER on {features:,} features of 2,048 numbers, batches of {batch_size:,}; CPU seconds"
    table = Table("head", "precision", "a step", "an epoch", title=title)
    for row in rows:
        table.add_row(row.head, row.precision, f"{row.step_seconds:.3f}", f"{row.epoch_seconds:.1f}")
    Console().print(table)


@bench_app.command("fit", extra="bench,report,search")
def bench_fit(
    images: Annotated[int, typer.Option(min=400, help="Photographs, each of 500 x 375 pixels.")] = 10_000,
    size: Annotated[int, typer.Option(min=32, help="Side of the network's input in pixels.")] = 224,
    as_json: AsJson = False,
) -> None:
    """Time `happier fit` against a bare pass of the same photographs through the network.

    Example: happier bench fit --images 10000 --size 224
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from happier.bench.fit import measure_fit

    with Console(stderr=True).status("starting") as status:
        rows = measure_fit(images=images, overrides=[f"transform.size={size}"], status=status.update)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
        return
    table = Table("", "seconds", "of the pass", "MiB", title=f"{images:,} photographs at {size} px")
    for row in rows:
        share = f"{row.seconds / rows[0].seconds:.2f}"
        table.add_row(row.what, f"{row.seconds:.0f}", share, f"{row.memory:,.0f}")
    Console().print(table)


@bench_app.command("embed", extra="bench")
def bench_embed(
    networks: Annotated[
        list[str] | None,
        typer.Option("--network", help="lite0, resnet50 or vit_small; may be repeated. [default: all]"),
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", help="Image side in pixels; may be repeated. [default: 64 160 224]"),
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Also torch.compile, which takes minutes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Time the embedding pass: eager torch, bf16, onnxruntime, and the share that decoding takes.

    Example: happier bench embed --network lite0 --size 224
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from happier.bench import embed as bench
    from happier.errors import OptionError

    for network in networks or []:
        if network not in bench.NETWORKS:
            raise OptionError(f"--network must be one of {', '.join(bench.NETWORKS)}, got {network!r}")
    with Console(stderr=True).status("starting") as status:
        found = list(
            bench.measure_embedding(
                networks or list(bench.NETWORKS),
                sizes or [64, 160, 224],
                compiled=compiled,
                status=status.update,
            )
        )
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in found], indent=2))
        return
    table = Table(title="Images a second, one core's CPU time")
    ways = list(found[0].rates)
    for title in ("network", "px", *ways, "best", "times eager", "decoding", "its share"):
        table.add_column(title, justify="left" if title in ("network", "best") else "right")
    for row in found:
        rates = [f"{row.rates[way]:,.0f}" for way in ways]
        last = [row.best, f"{row.speedup:.1f}", f"{row.decoding:,.0f}", f"{row.decoding_share:.0%}"]
        table.add_row(row.network, str(row.size), *rates, *last)
    Console().print(table)


@bench_app.command("suspects", extra="bench,search")
def bench_suspects(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|INDEX", help="An index, run, directory of vectors or .npy file.")
    ],
    manifest: Annotated[Path | None, typer.Option(help="The labels; by default the source's own.")] = None,
    share: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="Share of the labels to make wrong.")
    ] = 0.05,
    seeds: Annotated[int, typer.Option(min=1, help="Number of plantings at each level.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first planting.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Plant wrong labels at each level and look for them, side by side with cleanlab.

    Example: happier bench suspects photos.index
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from happier.bench.suspects import measure_suspects
    from happier.curation.labelled_vectors import read_labelled_vectors

    with Console(stderr=True).status("reading") as status:
        vectors = read_labelled_vectors(source, manifest=manifest)
        found = measure_suspects(
            vectors, share=share, seeds=tuple(range(seed, seed + seeds)), status=status.update
        )
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in found], indent=2))
        return
    table = Table("wrong from", "way", "planted", "precision", "listed", "recall")
    for entry in found:
        figures = (
            f"{entry.planted:,}",
            f"{entry.precision:.3f}",
            f"{entry.listed:,.0f}",
            f"{entry.recall:.3f}",
        )
        table.add_row(entry.level, entry.way, *figures)
    Console().print(table)
