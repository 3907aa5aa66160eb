"""Processes side by side."""

import os

from experiments.running import side_by_side


def say(job):
    return f"{job} with {os.environ['OMP_NUM_THREADS']} thread in another process: {os.getpid()}"


def test_jobs_are_done_in_other_processes_of_one_thread_each(capfd):
    environment = dict(os.environ)
    side_by_side(say, ["a", "b"], workers=1)
    first, second = sorted(capfd.readouterr().out.splitlines())
    assert first.startswith("1/2  a with 1 thread")
    assert second.startswith("2/2  b with 1 thread")
    assert first.split()[-1] == second.split()[-1] != str(os.getpid()), "one process does many jobs"
    assert dict(os.environ) == environment, "one thread is for the workers, not for whoever asks"
