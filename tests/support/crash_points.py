"""Kill a child at its n-th fsync, rename or unlink, for every n: ``crash_points.py embed|save FOLDER``.

FOLDER holds ``old/``, the state before; each child works in a copy of it, ``<n>/``. Children are forked
from a process that has loaded everything and computed nothing: torch's threads do not survive a fork.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import torch

from happier import Encoder
from happier.data import Manifest
from happier.encoder import embeddings, export, pretrained  # noqa: F401 - imported before the first fork

CALLS = ("fsync", "rename", "replace", "unlink")


def embed(encoder, folder, state):
    encoder.embed_manifest(Manifest.read(folder / "new.parquet"), state)


def save(encoder, folder, state):
    encoder.save_pretrained(state)


def kill_at(limit):
    done = 0

    def counted(real):
        def call(*arguments, **options):
            nonlocal done
            done += 1
            if done == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def main():
    operation, folder = globals()[sys.argv[1]], Path(sys.argv[2])
    torch.set_num_threads(1)
    encoder = Encoder.from_pretrained(folder / "model")
    for limit in range(1, 1000):
        state = folder / str(limit)
        shutil.copytree(folder / "old", state)
        child = os.fork()
        if child == 0:
            kill_at(limit)
            operation(encoder, folder, state)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            print(limit)
            return
        assert code == -signal.SIGKILL, code
    raise AssertionError("it never ended")


if __name__ == "__main__":
    main()
