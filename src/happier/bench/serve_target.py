"""The server that `happier.bench.serve` puts under load: any free port, its address as one line of JSON.

    python -m happier.bench.serve_target INDEX [PROCESSES [FOLDER TOKENS]]

With a folder and a file of tokens, images may be added and removed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from happier.web.processes import ProcessGroup, ServedIndexes
from happier.web.server import (
    ExplorerServer,
    ListeningAddress,
    access_for,
    freeze_loaded_code,
    open_explorer,
)


def main(index: str, processes: str = "1", writes: str = "", tokens: str = "") -> None:
    """Serve an index."""
    folder = Path(writes) if writes else None
    access = access_for("127.0.0.1", token=None, token_file=Path(tokens) if tokens else None)
    listening = ListeningAddress()
    group = explorer = None
    if int(processes) > 1:
        served = ServedIndexes(Path(index), writes=folder)
        group = ProcessGroup(served, listening, access=access, count=int(processes))
    else:
        freeze_loaded_code()
        explorer = open_explorer(index, writes=folder)
    sys.stdout.write(json.dumps({"address": listening.address}) + "\n")
    sys.stdout.flush()
    if group is not None:
        group.run()
    elif explorer is not None:
        ExplorerServer(explorer, access=access, listening=listening).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
