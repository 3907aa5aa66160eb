"""Emoji as drawn by five artists: group > subgroup > emoji.

    9 groups > 97 subgroups > 1,852 emoji, each drawn by 4 or 5 artists: 9,219 drawings, 9,143 images

The other 76 drawings are pictures that an artist uses for two emoji ("cook" and "man cook"). An image with
two labels teaches nothing and cannot be scored, so both are left out.

An emoji is identified by its code points in lower case without the variation selector ``fe0f``; names,
groups, subgroups and keywords (the column ``attributes``) come from emojibase. Only emoji that at least four
artists drew are kept; skin tones and other components are not emoji of their own here.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from happier.data.image import open_image
from happier.data.sources.package_clients import NpmPackage, fetch_npm
from happier.data.sources.prepared import PreparedSource, package_files, save_small
from happier.errors import FetchError
from happier.extras import needs_extra
from happier.progress import StageProgress

NAMES = NpmPackage(
    "emojibase-data",
    "17.0.0",
    "sha512-Yvgb5AWoHViHV/gq1qr5ZAarcBip+B27/ZLRsUJkbgAEaLlZ/fof9g882LTpmEpyhBNEC0m2SEmItljHsTygjA==",
)
# Artist -> package, and which of its files are drawings.
ARTISTS = {
    "google": (
        NpmPackage(
            "emoji-datasource-google",
            "16.0.0",
            "sha512-ZRexfzs7MVoLnmzZmNsO4TKhnAJp5D++Vm6PpUpH/jEQQlemp3l88CjZ+DoZ2faM9R4QxZkOPJCoT8DlPhfQ3A==",
        ),
        re.compile(r"package/img/google/64/(.+)\.png"),
    ),
    "twitter": (
        NpmPackage(
            "emoji-datasource-twitter",
            "16.0.0",
            "sha512-7F+uCuHH+7Qnrc15P5tnbvKkg9E6tlzi4MnT2uW1RlN4pLYTza6cP/dstIfSDMtpjFLWuZewWg8jBbuL2eyELQ==",
        ),
        re.compile(r"package/img/twitter/64/(.+)\.png"),
    ),
    "fluent-3d": (
        NpmPackage(
            "@lobehub/fluent-emoji-3d",
            "1.1.0",
            "sha512-Wlq2lVStTnr8BDpIJ0pEnTKO4LuDxxqTEhTvRtD1DLRF0me7ogeRQjKoehDHXuVJ2Qaecgl5wRBv60lUAG3h7g==",
        ),
        re.compile(r"package/assets/(.+)\.webp"),
    ),
    "fluent-flat": (
        NpmPackage(
            "@lobehub/fluent-emoji-flat",
            "1.1.0",
            "sha512-lPYCg8+N56MIj+iOgeBeH6AF0tneXxJCvgi41rOTjAWpA5rU2WUcmU1fiIXouEe8GrSTarWCYLY2ML+rdLRHsg==",
        ),
        re.compile(r"package/assets/(.+)\.svg"),
    ),
    "openmoji": (
        NpmPackage(
            "openmoji",
            "17.0.0",
            "sha512-EBnYrNGdcdw+OSXmENeNE1yBNRu6tOraTmoOyUbJkTmvT/+XETp8RZLSJFzD3lrPc5N9CzsyPnRTk0Vp4UaI9w==",
        ),
        re.compile(r"package/color/svg/(.+)\.svg"),
    ),
}
LEAST_ARTISTS = 4
CREDITS = """\
Emoji images and their sources:
- google: Noto Emoji, (c) Google, Apache License 2.0 (package emoji-datasource-google 16.0.0)
- twitter: Twemoji, (c) Twitter and other contributors, CC-BY 4.0 (package emoji-datasource-twitter 16.0.0)
- fluent-3d, fluent-flat: Fluent Emoji, (c) Microsoft, MIT (packages @lobehub/fluent-emoji-3d and -flat 1.1.0)
- openmoji: OpenMoji - the open-source emoji and icon project, CC-BY-SA 4.0 (package openmoji 17.0.0)
- names and groups: emojibase, (c) Miles Johnson, MIT (package emojibase-data 17.0.0)
The images were scaled to one size and laid on white.
"""


def emoji_key(code_points: str) -> str:
    """One spelling for an emoji's code points.

    >>> emoji_key("39-FE0F-20E3")
    '0039-20e3'
    """
    parts = code_points.lower().replace("_", "-").split("-")
    return "-".join(part.zfill(4) for part in parts if part != "fe0f")


def prepare(folder: Path, downloads: Path, size: int, progress: StageProgress) -> PreparedSource:
    """Fetch the packages and write one PNG for each emoji and artist.

    Raises:
        FetchError: a package cannot be fetched.
    """
    packages = [NAMES, *(package for package, _ in ARTISTS.values())]
    archives = {}
    for done, package in enumerate(packages):
        progress(f"download {package.name}", done, len(packages))
        archives[package.name] = fetch_npm(package, downloads)
    progress("download", len(packages), len(packages))

    entries = _entries(archives[NAMES.name])
    drawn: dict[str, list[str]] = defaultdict(list)
    for artist, (package, pattern) in ARTISTS.items():
        stage, done = f"prepare {artist}", 0
        for name, read in package_files(archives[package.name]):
            match = pattern.fullmatch(name)
            key = emoji_key(match[1]) if match else ""
            if key not in entries or artist in drawn[key]:
                continue
            image = _render(read(), size) if name.endswith(".svg") else open_image(read())
            save_small(image, folder / _path(key, artist), size)
            drawn[key].append(artist)
            done += 1
            progress(stage, done, len(entries))

    rows = sorted(_distinct_drawings(folder, drawn, entries))
    levels = ("group", "subgroup", "emoji")
    columns = ["path", *levels, "attributes", "artist"]
    return PreparedSource(pd.DataFrame(rows, columns=columns), levels, CREDITS)


def _distinct_drawings(
    folder: Path, drawn: dict[str, list[str]], entries: dict[str, tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """Rows of the emoji that enough artists drew; drawings used for two emoji are removed."""
    kept = {key: artists for key, artists in drawn.items() if len(artists) >= LEAST_ARTISTS}
    pictures: dict[bytes, list[tuple[str, str]]] = defaultdict(list)
    for key, artists in drawn.items():
        if key not in kept:
            shutil.rmtree((folder / _path(key, "")).parent, ignore_errors=True)
        for artist in artists if key in kept else ():
            content = hashlib.blake2b((folder / _path(key, artist)).read_bytes()).digest()
            pictures[content].append((key, artist))
    for uses in pictures.values():
        for key, artist in uses:
            if len(uses) == 1:
                yield _path(key, artist), *entries[key], artist
            else:
                (folder / _path(key, artist)).unlink()


def _path(key: str, artist: str) -> str:
    return f"images/{key}/{artist}.png"


def _entries(archive: Path) -> dict[str, tuple[str, ...]]:
    """Group, subgroup, name and keywords of every emoji by its key."""
    wanted = {"package/en/data.json", "package/meta/groups.json"}
    files: dict[str, Any] = {
        name: json.loads(read()) for name, read in package_files(archive) if name in wanted
    }
    if missing := wanted - files.keys():
        raise FetchError(f"the package {archive} lacks {', '.join(sorted(missing))}")
    groups = files["package/meta/groups.json"]
    entries: dict[str, tuple[str, ...]] = {}
    for entry in files["package/en/data.json"]:
        group = groups["groups"].get(str(entry.get("group")), "component")
        if group != "component":
            names = (group, groups["subgroups"][str(entry["subgroup"])], entry["label"])
            entries[emoji_key(entry["hexcode"])] = (*names, "; ".join(entry.get("tags", ())))
    return entries


def _render(svg: bytes, size: int) -> Any:
    with needs_extra("data"):
        import resvg_py
    png = resvg_py.svg_to_bytes(svg_string=svg.decode(), width=size, height=size, skip_system_fonts=True)
    return open_image(bytes(png))
