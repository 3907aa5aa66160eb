"""The server that `happier.bench.serve` puts under load: any free port, its address as one line of JSON."""

from __future__ import annotations

import json
import sys

from happier.web.server import ExplorerServer, open_explorer

if __name__ == "__main__":
    server = ExplorerServer(open_explorer(sys.argv[1]))
    sys.stdout.write(json.dumps({"address": server.address}) + "\n")
    sys.stdout.flush()
    server.run()
