"""Settings that hold for every test."""

import os

# Two test processes on two cores: one thread each, and none that spins while idle.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import hypothesis
import torch

torch.set_num_threads(1)
# Machines are shared: a slow example is not a failing one.
hypothesis.settings.register_profile("happier", deadline=None, derandomize=True)
hypothesis.settings.load_profile("happier")
