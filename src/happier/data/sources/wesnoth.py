"""Unit sprites of The Battle for Wesnoth: race > line > unit, from Debian's package.

A line is what units advance to from one another ("Elvish Archer" to "Elvish Ranger" and "Elvish Marksman"),
named after the unit it starts with. A sprite belongs to the unit whose file names it, or whose image its
name continues; sprites of several units are left out.

Most sprites are frames of animations, many of them nearly the same. Of the sprites of a unit that differ by
less than `LEAST_DIFFERENCE` (of 255) on average over 24 x 24 pixels, the first is kept. Units with fewer than
four sprites left are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from happier.arrays import Float32Array
from happier.data.image import on_white, open_image
from happier.data.sources.package_clients import fetch_debian, unpack_debian
from happier.data.sources.prepared import PreparedSource, save_small
from happier.errors import FetchError
from happier.progress import StageProgress
from happier.storage.atomic import scratch_folder

PACKAGES = ("wesnoth-1.16-data", "wesnoth-1.18-data")
LEAST_DIFFERENCE = 6.0
LEAST_SPRITES = 4
SIDES = range(48, 161)  # smaller ones are parts, larger ones are effects
CREDITS = """\
Unit sprites of The Battle for Wesnoth, (c) the Wesnoth project and its artists, see
https://wiki.wesnoth.org/Wesnoth:Copyrights: GNU GPL version 2 or later, some parts CC-BY-SA 4.0
(Debian package {package}).
The sprites were scaled to one size and laid on white; near-duplicate animation frames were left out.
"""

_UNIT = re.compile(r"^\[unit_type\]$(.*?)^\[/unit_type\]$", re.DOTALL | re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+)\n([^\n]*?)#enddef", re.MULTILINE)
_VALUE = re.compile(r'(\w+)\s*=\s*(?:_\s*)?"?([^"#]*)"?')
_SPRITE = re.compile(r"units/[^\s\"'{}:=()]*?\.png")
_RANGE = re.compile(r"\[([\d~,*]+)\]")


class _Unit:
    """One ``[unit_type]``: its own values, and the text that names its sprites."""

    def __init__(self, body: str, text: str) -> None:
        self.values: dict[str, str] = {}
        self.text = text
        inside: list[str] = []
        for line in map(str.strip, body.splitlines()):
            if line.startswith("[/"):
                inside = inside[:-1]
            elif line.startswith("["):
                inside.append(line)
            elif match := _VALUE.match(line):
                # [base_unit] names the unit whose values are the defaults.
                key = "base" if inside == ["[base_unit]"] and match[1] == "id" else match[1]
                if not inside or key == "base":
                    self.values.setdefault(key, match[2].strip())

    def value(self, key: str, units: dict[str, _Unit]) -> str:
        own = self.values.get(key)
        base = units.get(self.values.get("base", ""))
        return own if own is not None else (base.value(key, units) if base and base is not self else "")


def prepare(folder: Path, downloads: Path, size: int, progress: StageProgress) -> PreparedSource:
    """Fetch the package and write the sprites that differ.

    Raises:
        FetchError: the package cannot be fetched, or holds no units.
    """
    progress("download wesnoth", 0, 0)
    archive = fetch_debian(PACKAGES, downloads)
    with scratch_folder(downloads / "wesnoth.unpacked") as unpacked:
        progress("unpack wesnoth", 0, 0)
        unpack_debian(archive, unpacked)
        cores = list(unpacked.glob("usr/share/games/wesnoth/*/data/core"))
        if len(cores) != 1:
            raise FetchError(f"the package {archive} holds no data/core of Wesnoth")
        rows = _write_sprites(cores[0], folder, size, progress)
    levels = ("race", "line", "unit")
    table = pd.DataFrame(rows, columns=["path", *levels])
    return PreparedSource(table, levels, CREDITS.format(package=archive.name.split("_")[0]))


def _write_sprites(
    core: Path, folder: Path, size: int, progress: StageProgress
) -> list[tuple[str, str, str, str]]:
    units = _read_units(core / "units")
    sprites = _sprites_of(units, core / "images")
    lines = _lines(units)
    rows = []
    seen: dict[bytes, int] = defaultdict(int)
    chosen = []
    for done, (name, files) in enumerate(sorted(sprites.items()), start=1):
        progress("compare sprites", done, len(sprites))
        different = _different([core / "images" / file for file in files])
        if len(different) >= LEAST_SPRITES:
            chosen.append((name, different))
            for _, image in different:
                seen[image.tobytes()] += 1
    for done, (name, different) in enumerate(chosen, start=1):
        progress("prepare sprites", done, len(chosen))
        race = units[name].value("race", units)
        for file, image in different:
            if seen[image.tobytes()] == 1:  # the same picture for two units is ambiguous
                path = f"images/{_file_name(race)}/{_file_name(name)}/{file.stem}.png"
                save_small(image, folder / path, size)
                rows.append((path, race, lines[name], name))
    return rows


def _file_name(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-").lower()


def _read_units(folder: Path) -> dict[str, _Unit]:
    units = {}
    for file in sorted(folder.rglob("*.cfg")):
        text = file.read_text(encoding="utf-8")
        for name, value in _MACRO.findall(text):
            text = text.replace("{" + name + "}", value)
        for match in _UNIT.finditer(text):
            unit = _Unit(match[1], text)
            if unit.values.get("id") and file.parent.name != "fake":
                units[unit.values["id"]] = unit
    if not units:
        raise FetchError(f"{folder} holds no unit files of Wesnoth")
    return units


def _sprites_of(units: dict[str, _Unit], images: Path) -> dict[str, list[str]]:
    """Sprites of each unit, those of several units left out."""
    files = {path.relative_to(images).as_posix() for path in (images / "units").rglob("*.png")}
    owners: dict[str, set[str]] = defaultdict(set)
    stems: dict[str, str] = {}
    for name, unit in units.items():
        for named in _SPRITE.findall(unit.text):
            for file in _expanded(named):
                if file in files:
                    owners[file].add(name)
        stems[unit.value("image", units).split("~")[0].removesuffix(".png")] = name
    for file in files - owners.keys():
        stem = file.removesuffix(".png")
        fitting = [start for start in stems if start and re.match(re.escape(start) + r"[-+]", stem)]
        if fitting:
            owners[file].add(stems[max(fitting, key=len)])
    sprites: dict[str, list[str]] = defaultdict(list)
    for file, names in sorted(owners.items()):
        if len(names) == 1 and "halo" not in file:
            sprites[next(iter(names))].append(file)
    return sprites


def _expanded(named: str) -> list[str]:
    """File names that a name with ranges stands for.

    >>> _expanded("bow-[1~3,2].png")
    ['bow-1.png', 'bow-2.png', 'bow-3.png']
    """
    match = _RANGE.search(named)
    if not match:
        return [named]
    numbers: list[str] = []
    for part in match[1].split(","):
        first, _, last = part.split("*")[0].partition("~")
        if first and last:
            low, high = sorted((int(first), int(last)))
            numbers += [
                str(number).zfill(len(first) if first[0] == "0" else 0) for number in range(low, high + 1)
            ]
        elif first:
            numbers.append(first)
    before, after = named[: match.start()], named[match.end() :]
    return [file for number in dict.fromkeys(numbers) for file in _expanded(before + number + after)]


def _lines(units: dict[str, _Unit]) -> dict[str, str]:
    """The line of each unit: units of one race that advance to one another, named after the first of them."""
    line = {name: name for name in units}

    def root(name: str) -> str:
        while line[name] != name:
            name = line[name]
        return name

    for name, unit in units.items():
        for later in map(str.strip, unit.value("advances_to", units).split(",")):
            if later in units and units[later].value("race", units) == unit.value("race", units):
                line[root(later)] = root(name)
    members: dict[str, list[str]] = defaultdict(list)
    for name in units:
        members[root(name)].append(name)

    def rank(name: str) -> tuple[int, str]:
        level = units[name].value("level", units)
        return (int(level) if level.isdigit() else 99, name)

    return {name: min(own, key=rank) for own in members.values() for name in own}


def _different(files: list[Path]) -> list[tuple[Path, Image.Image]]:
    """Sprites on white, without those that look like one before them."""
    kept: list[tuple[Path, Image.Image]] = []
    looks: list[Float32Array] = []
    for file in files:
        opened = open_image(file.read_bytes())
        if opened.width not in SIDES or opened.height not in SIDES:
            continue
        image = on_white(opened)
        look = np.asarray(image.resize((24, 24), Image.Resampling.BOX), dtype=np.float32)
        if all(np.abs(look - other).mean() >= LEAST_DIFFERENCE for other in looks):
            kept.append((file, image))
            looks.append(look)
    return kept
