"""Kill a process at its n-th fsync, rename or unlink, for every n."""

import os
import shutil
import signal

import torch
from processes import run_fresh

CALLS = ("fsync", "rename", "replace", "unlink")


def kill_everywhere(operation, folder, *arguments):
    """Kill an operation at each of its changes, in a fresh process each time; how many there are, and one.

    Args:
        operation: a function of an importable module, called with a copy of ``folder/old``, which is
            ``folder/<n>`` for the n-th change, and the arguments.
        folder: holds ``old``, the state before.
        arguments: further ones.
    """
    for limit in range(1, 1000):
        state = folder / str(limit)
        shutil.copytree(folder / "old", state)
        done = run_fresh(until_killed, limit, operation, state, *arguments)
        if done.code == 0:
            return limit
        assert done.code == -signal.SIGKILL, done.err
    raise AssertionError("it never ended")


def until_killed(limit, operation, *arguments):
    torch.set_num_threads(1)
    done = 0

    def counted(real):
        def call(*words, **options):
            nonlocal done
            done += 1
            if done == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*words, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    operation(*arguments)


def embed(state, model, manifest):
    """An operation: embed a manifest's images into a directory."""
    from happier import Encoder
    from happier.data import Manifest

    Encoder.from_pretrained(model).embed_manifest(Manifest.read(manifest), state)


def save(state, model):
    """An operation: save a model over another."""
    from happier import Encoder

    Encoder.from_pretrained(model).save_pretrained(state)
