"""Start a run again and again, and kill -9 it each time: ``killed_runs.py STEP:WHERE ... -- OVERRIDE ...``.

Each run is a process of its own, forked from one that has imported everything and computed nothing (torch's
threads do not survive a fork). WHERE is ``step`` (before that step of this process) or ``save`` (while the
first checkpoint after it is written), or ``end`` (not killed at all).
"""

import os
import signal
import sys

import torch

from happier.training import loop
from happier.training.compose import compose


def killed_at(config, step, where):
    calls = 0
    real_gradient, real_fsync = loop.batch_gradient, os.fsync

    def gradient(*arguments, **options):
        nonlocal calls
        calls += 1
        if where == "step" and calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return real_gradient(*arguments, **options)

    def fsync(descriptor):
        if where == "save" and calls >= step:
            os.kill(os.getpid(), signal.SIGKILL)
        real_fsync(descriptor)

    loop.batch_gradient, os.fsync = gradient, fsync
    loop.train(config)


def main():
    places, overrides = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    torch.set_num_threads(1)
    config = compose(overrides)
    for place in places:
        step, where = place.split(":")
        child = os.fork()
        if child == 0:
            killed_at(config, int(step), where)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(place, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
