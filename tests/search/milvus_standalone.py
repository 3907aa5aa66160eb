"""A real Milvus server: PyPI's ``milvus`` carries the standalone binary. It gets a venv of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

# Its command imports pkg_resources, which later setuptools do not have.
PACKAGES = ("setuptools<80", "milvus==2.3.5")
VENV = Path(__file__).parents[2] / ".venv-milvus"
_START_SECONDS = 180
# Those that this process started, to wait for when they have been stopped.
_started: list[subprocess.Popen] = []


class NotInstallableError(Exception):
    """The server is not available on this machine."""


def install() -> Path:
    """The command that starts the server, installed when first asked for.

    Raises:
        NotInstallableError: there is no wheel for this machine, or no package index.
    """
    command = VENV / "bin" / "milvus-server"
    with FileLock(f"{VENV}.lock"):
        if not command.exists():
            try:
                subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True, capture_output=True)
                pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--no-deps", "-q", *PACKAGES]
                subprocess.run(pip, check=True, capture_output=True, text=True)
            except subprocess.CalledProcessError as error:
                last = str(error.stderr or "").strip().splitlines()[-1:]
                raise NotInstallableError(f"{PACKAGES[1]} does not install here: {' '.join(last)}") from error
    return command


# The user that a new server has, and its password.
TOKEN = "root:Milvus"


@dataclass(frozen=True)
class MilvusStandalone:
    """A server that runs, and takes requests with `TOKEN` only.

    Attributes:
        port: it listens on.
        process: its number when it was first started; also that of its group.
        folder: that its data is in.
    """

    port: int
    process: int
    folder: Path

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


def join_server(folder: Path) -> MilvusStandalone:
    """The server whose data is in a folder, started by whoever asks first.

    Raises:
        NotInstallableError: it does not install or start here.
    """
    with FileLock(folder / "users.lock"):
        state = folder / "server.json"
        kept = json.loads(state.read_text()) if state.exists() else {"users": 0}
        if "reason" in kept:
            raise NotInstallableError(kept["reason"])
        if not kept["users"]:
            try:
                server = _start(folder)
            except NotInstallableError as error:
                state.write_text(json.dumps({"reason": str(error)}))
                raise
            kept = {"users": 0, "port": server.port, "process": server.process}
        kept["users"] += 1
        state.write_text(json.dumps(kept))
    return MilvusStandalone(kept["port"], kept["process"], folder)


def restart_server(folder: Path) -> None:
    """Kill the server whose data is in a folder, and start it again at the same address."""
    with FileLock(folder / "users.lock"):
        state = folder / "server.json"
        kept = json.loads(state.read_text())
        _kill(kept["process"])
        # Its command takes another port where this one is still in use by connections that are ending.
        while not _is_free(kept["port"]):
            time.sleep(1)
        kept["process"] = _start(folder, kept["port"]).process
        state.write_text(json.dumps(kept))


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def leave_server(folder: Path) -> None:
    """Stop the server when nobody uses it any more."""
    with FileLock(folder / "users.lock"):
        state = folder / "server.json"
        kept = json.loads(state.read_text())
        kept["users"] -= 1
        state.write_text(json.dumps(kept))
        if not kept["users"]:
            _kill(kept["process"])


def _kill(group: int) -> None:
    """End the command and the server that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    for process in _started:
        if process.pid == group:
            process.wait()


def _start(folder: Path, port: int | None = None) -> MilvusStandalone:
    command = install()
    if port is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [
                str(command),
                *("--data", str(folder / "data"), "--proxy-port", str(port)),
                *("--authorization-enabled", "true"),
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _started.append(process)
    server = MilvusStandalone(port, process.pid, folder)
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            client = MilvusClient(server.uri, token=TOKEN, timeout=5)
            client.list_collections(timeout=5)
            client.close()
        except MilvusException:
            time.sleep(0.5)
        else:
            return server
    _kill(process.pid)
    raise NotInstallableError(f"the Milvus server does not start here; see {folder / 'server.log'}")


class Cable:
    """A port that leads to another one until it is cut, and again once it is mended.

    Attributes:
        port: where it begins.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[socket.socket] = []
        self.port = 0
        self.mend()

    def mend(self) -> None:
        """Lead to the target."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """End all connections and take no more."""
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                target.sendall(piece)
