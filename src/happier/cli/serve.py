"""``happier serve``: explore an index in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app


@app.command(extra="web")
def serve(
    index: Annotated[Path, typer.Argument(help="Directory of the index.")],
    against: Annotated[
        Path | None, typer.Option(help="A second index of the same catalogue, to compare models.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine a token is needed.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="HAPPIER_TOKEN", help="The token, instead of a random one.")
    ] = None,
    images: Annotated[
        list[Path] | None, typer.Option(help="Another folder that images may be in; may be repeated.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name of the server; may be repeated.")
    ] = None,
    corrections: Annotated[
        Path | None,
        typer.Option(help="CSV that decisions about suspect labels go to; without it the server only reads."),
    ] = None,
) -> None:
    """Open an index as a page: search by image, browse the taxonomy, look at the worst mistakes.

    Example: happier serve emoji.index --against baseline.index
    """
    from happier.web.server import ExplorerServer, access_for, open_explorer

    access = access_for(host, token=token, allow_hosts=allow_host or ())
    explorer = open_explorer(index, against, images=images or (), corrections=corrections)
    server = ExplorerServer(explorer, host=host, port=port, access=access)
    typer.echo(f"Exploring {index} at {server.link}    (API: {server.address}/docs, Ctrl-C to stop)")
    server.run()
