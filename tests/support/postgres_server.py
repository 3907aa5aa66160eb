"""A real PostgreSQL with pgvector: PyPI's ``pgserver`` carries both. It runs in a folder of its own."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

_START_SECONDS = 120
_CALM = ("fsync=off", "max_connections=60", "shared_buffers=64MB", "autovacuum_naptime=5min")


class NotRunnableError(Exception):
    """PostgreSQL does not run on this machine."""


class PostgresServer:
    """A server that runs, with a user ``postgres``.

    Attributes:
        port: it listens on, on 127.0.0.1.
        password: of the user.
    """

    def __init__(self) -> None:
        found = find_spec("pgserver")
        if found is None or found.origin is None:
            raise NotRunnableError("the package pgserver, which carries PostgreSQL, is not installed")
        package = Path(found.origin).parent
        self._folder = Path(tempfile.mkdtemp(prefix="happier-postgres-"))
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            self._folder.chmod(0o755)
            # The installed files may be in a folder that only root may enter; libraries are beside them.
            for part in (package, package.with_name("pgserver.libs")):
                if part.exists():
                    shutil.copytree(part, self._folder / part.name, symlinks=True)
            package = self._folder / package.name
        self._programs = package / "pginstall" / "bin"
        self._data = self._folder / "data"
        self._data.mkdir(mode=0o700)
        if self._user:
            account = pwd.getpwnam(self._user)
            os.chown(self._data, account.pw_uid, account.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        self.password = secrets.token_hex(16)
        password = self._folder / "password"
        password.write_text(self.password)
        try:
            access = ("-U", "postgres", "-A", "scram-sha-256", "--pwfile", password)
            self._run("initdb", "-D", self._data, *access, "-E", "UTF8", "--locale=C", "--no-sync")
            self.start()
        except (OSError, subprocess.CalledProcessError, NotRunnableError) as error:
            said = getattr(error, "stderr", b"") or b""
            self.remove()
            reason = f"{error} {said.decode()[-300:]}"
            raise NotRunnableError(f"PostgreSQL does not start here: {reason}") from None

    @property
    def uri(self) -> str:
        """Its address."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._programs / program), *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self._folder)

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        settings = [part for one in _CALM for part in ("-c", one)]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *settings]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._user, cwd=self._folder, start_new_session=True
            )
        end = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            try:
                self._run("pg_isready", "-h", "127.0.0.1", "-p", self.port)
            except subprocess.CalledProcessError:
                time.sleep(0.05)
            else:
                return
        self.stop()
        raise NotRunnableError((self._folder / "log").read_text()[-300:])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: at once (SIGINT), or as a crash would (SIGQUIT)."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop it and delete its files."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
