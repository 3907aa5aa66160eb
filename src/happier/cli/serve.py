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
        list[Path] | None,
        typer.Option(help="Another index of the same catalogue, to compare models; up to three."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine a token is needed.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="HAPPIER_TOKEN", help="The token, instead of a random one.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="A TOML file of named tokens, with roles and dates of expiry.")
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
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that serve.")] = 1,
    add_to: Annotated[
        Path | None,
        typer.Option(help="Let tokens with the role write change the index; new images go to this folder."),
    ] = None,
    root_path: Annotated[str, typer.Option(help="Path it is reached under, e.g. /photos.")] = "",
    ssl_certfile: Annotated[
        Path | None, typer.Option(help="Certificate, to speak TLS without a proxy.")
    ] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(help="Key of the certificate.")] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log each request as a line of JSON to standard error.")
    ] = False,
) -> None:
    """Open an index as a page: search by image, browse the taxonomy, look at the worst mistakes.

    Example: happier serve emoji.index --against baseline.index
    """
    from happier.errors import OptionError
    from happier.web.explorer import MODEL_KEYS
    from happier.web.processes import ProcessGroup, ServedIndexes, log_requests
    from happier.web.server import (
        ExplorerServer,
        ListeningAddress,
        Tls,
        access_for,
        freeze_loaded_code,
        open_explorer,
        warn_of_unreadable_images,
    )

    if (ssl_certfile is None) != (ssl_keyfile is None):
        raise OptionError("give --ssl-certfile and --ssl-keyfile together")
    if len(against or ()) > len(MODEL_KEYS) - 1:
        raise OptionError(f"at most {len(MODEL_KEYS)} models can be compared: --against up to three times")
    if add_to is not None and tokens is None:
        raise OptionError("--add-to needs --tokens FILE with a token whose role is write")
    tls = None if ssl_certfile is None or ssl_keyfile is None else Tls(ssl_certfile, ssl_keyfile)
    access = access_for(host, token=token, allow_hosts=allow_host or (), token_file=tokens)
    path = "/" + root_path.strip("/") if root_path.strip("/") else ""
    if access_log:
        log_requests()

    def start() -> ListeningAddress:
        listening = ListeningAddress(host, port, tls=tls, root_path=path)
        link = listening.link(access.token)
        typer.echo(f"Exploring {index} at {link}    (API: {listening.address}/docs, Ctrl-C to stop)")
        return listening

    if workers > 1:
        served = ServedIndexes(index, tuple(against or ()), tuple(images or ()), corrections, add_to, path)
        ProcessGroup(served, start(), access=access, count=workers).run()
        return
    freeze_loaded_code()
    explorer = open_explorer(
        index, against or (), images=images or (), corrections=corrections, writes=add_to, root_path=path
    )
    warn_of_unreadable_images(explorer)
    ExplorerServer(explorer, access=access, listening=start()).run()
