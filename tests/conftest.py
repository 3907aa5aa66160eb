"""Settings that hold for every test."""

import os
import shutil

# Two test processes on two cores: one thread each, and none that spins while idle.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Milvus' client speaks gRPC, whose fork handlers restart its threads in every child that a test forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
# Machines are shared: a slow example is not a failing one.
hypothesis.settings.register_profile("happier", deadline=None, derandomize=True)
hypothesis.settings.load_profile("happier")


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, driven by playwright; its event loop must end before other modules use theirs."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium was found; `make browser` installs it")
        pytest.skip("no Chromium was found; `make browser` installs it")
    playwright = pytest.importorskip("playwright.sync_api")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def postgres_server():
    """A real PostgreSQL with pgvector, in processes of its own."""
    from postgres_server import NotRunnableError, PostgresServer

    try:
        server = PostgresServer()
    except NotRunnableError as reason:
        pytest.skip(str(reason))
    yield server
    server.remove()


@pytest.fixture
def postgres(postgres_server, monkeypatch):
    """The server, named by the user, who has its password."""
    monkeypatch.setenv("PGPASSWORD", postgres_server.password)
    monkeypatch.setenv("PGVECTOR_URI", postgres_server.uri)
    return postgres_server
