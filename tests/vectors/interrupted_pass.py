"""Embed in a process that stops somewhere: ``interrupted_pass.py MODEL MANIFEST OUT BATCHES WHAT``.

After BATCHES batches of 2 images it is killed (WHAT is ``kill``), or it waits (WHAT is a folder: it makes
``paused`` there and goes on when ``go`` appears).
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch

from happier import Encoder
from happier.data import Manifest
from happier.vectors import writer


def main():
    model, manifest, out, batches, what = sys.argv[1:]
    torch.set_num_threads(1)
    real = writer.run_pass

    def run_pass(*arguments):
        for number, batch in enumerate(real(*arguments)):
            if number == int(batches):
                stop(what)
            yield batch

    writer.run_pass = run_pass
    Encoder.from_pretrained(model).embed_manifest(Manifest.read(manifest), out, batch_size=2)


def stop(what):
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    (Path(what) / "paused").touch()
    while not (Path(what) / "go").exists():
        time.sleep(0.02)


if __name__ == "__main__":
    main()
