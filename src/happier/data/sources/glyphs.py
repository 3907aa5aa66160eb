"""Characters in the fonts of Debian's packages: family > script > kind > base > character.

An image is one character in one family of fonts. The levels come from Unicode: the chapters of its standard
group the scripts (signs without a script are grouped by block), the general category is the kind, and the
base is the letter below the marks, styles and forms: A for À, Ą and the mathematical bold A; the consonant of
a syllable.

Of the families that draw a character at most `MOST_FAMILIES` are taken, in an order that differs from
character to character; one whose drawing is nearly that of another is left out. So are empty drawings, a
font's box for what it lacks, drawings that an earlier character has in the same family (the Greek Alpha is
mostly the Latin A), characters of which most drawings are of that kind, and characters with fewer than
`LEAST_FAMILIES` drawings. Chinese characters, kana and Hangul would outnumber all others and are left out.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import struct
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from happier.arrays import Float32Array
from happier.data.sources.package_clients import fetch_debian, unpack_debian
from happier.data.sources.prepared import PreparedSource
from happier.errors import FetchError, MissingExtraError
from happier.progress import StageProgress
from happier.storage.atomic import scratch_folder

Uint8Array = npt.NDArray[np.uint8]
LEVELS = ("family", "script", "kind", "base", "character")
MOST_FAMILIES, LEAST_FAMILIES = 12, 8
# Cosine of two drawings of 24 x 24 pixels from which they count as the same.
ALIKE = 0.97
# Fonts whose drawings are not of the characters that they are assigned to, or are keys and capitals.
NOT_UNICODE = re.compile(r"Zawgyi|Ayar|NonUnicode|Keyboard|Smallcaps|Caps ")
# Names after "fonts-"; a name that another release of Debian has instead stands behind a bar.
_PACKAGE_NAMES = """
liberation2|liberation agave arabeyes arundina b612 beng-extra bpg-georgian cantarell cardo cmu comfortaa
croscore crosextra-carlito ddc-uchen dejavu-core deva-extra dosis ebgaramond fantasque-sans farsiweb
firacode freefont-ttf gargi gemunu-libre go gubbi gujr-extra guru-extra hack hosny-amiri hosny-thabit inter
jetbrains-mono junicode jura kacst khmeros lao lato lg-aboriginal linuxlibertine lklug-sinhala meera-inimai
mononoki mph-2b-damase myanmar nakula navilu noto-core noto-mono oflb-asana-math oldstandard open-sans
opendyslexic orya-extra paktype paratype play quicksand roboto-slab roboto-unhinted sahadeva sarai
senamirmir-washra stix symbola telu-extra teluguvijayam texgyre-math tibetan-machine tuffy uralic urw-base35
vollkorn yrsa-rasa gfs-artemisia gfs-baskerville gfs-bodoni-classic gfs-complutum gfs-didot
gfs-didot-classic gfs-gazis gfs-neohellenic gfs-olga gfs-porson gfs-solomos gfs-theokritos
lohit-beng-assamese lohit-beng-bengali lohit-deva lohit-gujr lohit-guru lohit-knda lohit-mlym lohit-orya
lohit-taml lohit-taml-classical lohit-telu samyak-deva samyak-gujr samyak-mlym samyak-orya samyak-taml
sil-abyssinica sil-akatab sil-alkalami sil-andika sil-annapurna sil-awami-nastaliq sil-charis sil-dai-banna
sil-doulos sil-ezra sil-galatia sil-gentiumplus sil-harmattan sil-lateef sil-mondulkiri sil-padauk
sil-scheherazade sil-sophia-nubian sil-tagmukay sil-taiheritagepro smc-anjalioldlipi smc-chilanka smc-dyuthi
smc-gayathri smc-karumbi smc-keraleeyam smc-manjari smc-meera smc-rachana smc-suruma smc-uroob
tlwg-garuda-ttf tlwg-kinnari-ttf tlwg-laksaman-ttf tlwg-loma-ttf tlwg-mono-ttf tlwg-norasi-ttf
tlwg-purisa-ttf tlwg-sawasdee-ttf tlwg-typewriter-ttf tlwg-typist-ttf tlwg-typo-ttf tlwg-umpush-ttf
tlwg-waree-ttf
"""
PACKAGES = tuple(tuple(f"fonts-{name}" for name in names.split("|")) for names in _PACKAGE_NAMES.split())
CREDITS = """\
Characters of fonts from Debian packages; the copyright file of each is in the folder licences. The characters
were drawn at one size and laid on white.
"""
# Chapters of the Unicode standard.
FAMILIES = {
    "Europe": "Latn Grek Copt Cyrl Glag Armn Geor Runr Ogam Goth Ital Hung Perm Aghb Linb Lina Cprt Shaw",
    "Middle East": "Hebr Arab Syrc Samr Mand Yezi Phnx Nbat Palm Hatr Armi Xpeo Xsux Egyp Sarb Narb Avst",
    "South and Central Asia": "Deva Beng Guru Gujr Orya Taml Telu Knda Mlym Sinh Thaa Newa Tibt Mong Limb "
    "Mtei Mroo Wara Olck Cakm Lepc Saur Sylo Kthi Shrd Takr Sidd Brah Khar Phag Marc Zanb Soyo Gran "
    "Tirh Modi",
    "Southeast Asia": "Thai Laoo Mymr Khmr Tale Talu Lana Tavt Kali Cham Hmng Hmnp Rohg Tglg Hano Buhd Tagb "
    "Bugi Bali Java Rjng Batk Sund",
    "East Asia": "Bopo Yiii Lisu Plrd Nshu Tang",
    "Africa": "Ethi Tfng Osma Nkoo Vaii Bamu Bass Mend Adlm Medf",
    "Americas": "Cher Cans Osge Dsrt",
}
_FAMILY_OF = {code: name for name, codes in FAMILIES.items() for code in codes.split()}
_LEFT_OUT = frozenset(("Hani", "Hang", "Hira", "Kana"))
KINDS = {
    "Lu": "uppercase", "Ll": "lowercase", "Lt": "titlecase", "Lm": "modifier letter", "Lo": "letter",
    "Mn": "mark", "Mc": "mark", "Me": "mark", "Nd": "digit", "Nl": "number", "No": "number",
    "Sm": "mathematical", "Sc": "currency", "Sk": "modifier symbol", "So": "symbol",
}  # fmt: skip
_FORM = re.compile(r" WITH .*| (ISOLATED|INITIAL|MEDIAL|FINAL) FORM$")
_SYLLABLE = re.compile(r"(SYLLABLE .*?|SYLLABICS .*?)[AEIOU]+$")
_LOOK = 24


@dataclass(frozen=True)
class Font:
    """The regular font of a family.

    Attributes:
        name: of the family.
        file: of the font.
        package: that it is from.
        characters: that it draws.
    """

    name: str
    file: Path
    package: str
    characters: frozenset[str]

    def drawing(self, character: str, size: int) -> Image.Image:
        """The character in black on white, on a common baseline, made smaller only where it would not fit.

        Empty where the font's outlines are broken.
        """
        try:
            return self._drawing(character, size)
        except OSError:
            return Image.new("L", (size, size), 255)

    def _drawing(self, character: str, size: int) -> Image.Image:
        room, em = size - 4, size * 5 // 8
        font = _opened(self.file, em)
        left, top, right, bottom = font.getbbox(character, anchor="ls")
        if (largest := max(right - left, bottom - top)) > room:
            font = _opened(self.file, max(1, int(em * room / largest)))
            left, top, right, bottom = font.getbbox(character, anchor="ls")
        # The baseline moves only where the character would leave the image.
        baseline = min(max(size * 2 // 3, 2 - top), size - 2 - bottom)
        image = Image.new("L", (size, size), 255)
        at = ((size - left - right) // 2, baseline)
        ImageDraw.Draw(image).text(at, character, fill=0, font=font, anchor="ls")
        return image


@lru_cache(maxsize=64)
def _opened(file: Path, em: int) -> ImageFont.FreeTypeFont:
    # The basic layout draws a mark alone; the other would put it on a dotted circle.
    return ImageFont.truetype(str(file), em, layout_engine=ImageFont.Layout.BASIC)


@dataclass
class _Drawn:
    """The drawings of one character: the families with one of its own, and how these look."""

    looks: dict[str, Uint8Array] = field(default_factory=dict)
    borrowed: int = 0


def prepare(folder: Path, downloads: Path, size: int, progress: StageProgress) -> PreparedSource:
    """Fetch the packages and write one PNG for each character and family that is taken.

    Raises:
        FetchError: a package cannot be fetched.
    """
    with scratch_folder(downloads / "glyphs.unpacked") as unpacked:
        archives = {}
        for done, names in enumerate(PACKAGES):
            progress(f"download {names[0]}", done, len(PACKAGES))
            archive = fetch_debian(names, downloads)
            archives[archive.name.split("_")[0]] = archive
        for done, (package, archive) in enumerate(archives.items(), start=1):
            progress("unpack fonts", done, len(archives))
            unpack_debian(archive, unpacked / package)
        fonts = _regular_fonts(unpacked, progress)
        rows = list(_write_drawings(fonts, folder, size, progress))
        used = {fonts[row[-1]].package for row in rows}
        credit = CREDITS + "".join(
            _credit(package, archive, unpacked, folder)
            for package, archive in sorted(archives.items())
            if package in used
        )
    return PreparedSource(pd.DataFrame(rows, columns=["path", *LEVELS, "font"]), LEVELS, credit)


def _write_drawings(
    fonts: dict[str, Font], folder: Path, size: int, progress: StageProgress
) -> Iterator[tuple[str, ...]]:
    taken = _taken(fonts, size, progress)
    pictures: set[bytes] = set()
    for done, (character, families) in enumerate(taken.items(), start=1):
        progress("draw characters", done, len(taken))
        for name in families:
            image = fonts[name].drawing(character, size)
            # Another family may use the same picture for a character that came before.
            if (content := image.tobytes()) not in pictures:
                pictures.add(content)
                path = f"images/{ord(character):04x}/{_file_name(name)}.png"
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                image.save(folder / path, compress_level=4)
                yield path, *levels_of(character), name


def _taken(fonts: dict[str, Font], size: int, progress: StageProgress) -> dict[str, list[str]]:
    """The families that are taken of each character, in the order of the characters."""
    fonts_with = Counter(character for font in fonts.values() for character in font.characters)
    drawn: dict[str, _Drawn] = defaultdict(_Drawn)
    for done, font in enumerate(fonts.values(), start=1):
        progress("compare drawings", done, len(fonts))
        # What a font draws for a code point that never has a character is its box for what it lacks.
        owned = {font.drawing("\U0010ffff", size).tobytes()}
        for character in sorted(font.characters):
            if fonts_with[character] < LEAST_FAMILIES:
                continue
            image = font.drawing(character, size)
            content = image.tobytes()
            if content in owned:
                drawn[character].borrowed += 1
            elif np.asarray(image).min() < 128:
                owned.add(content)
                drawn[character].looks[font.name] = _look(image)
    taken = {}
    for character, own in sorted(drawn.items()):
        if len(own.looks) > own.borrowed:
            families = _different(character, own.looks)
            if len(families) >= LEAST_FAMILIES:
                taken[character] = families
    return taken


def _look(image: Image.Image) -> Uint8Array:
    """The ink of a drawing over `_LOOK` x `_LOOK` pixels."""
    return 255 - np.asarray(image.resize((_LOOK, _LOOK), Image.Resampling.BOX)).reshape(-1)


def _different(character: str, looks: dict[str, Uint8Array]) -> list[str]:
    """The first families, in an order that the character decides, whose drawings differ."""
    ordered = sorted(looks, key=lambda name: hashlib.blake2b(f"{character} {name}".encode()).digest())
    kept: dict[str, Float32Array] = {}
    for name in ordered:
        ink = looks[name].astype(np.float32)
        ink /= np.linalg.norm(ink)
        if all(float(ink @ other) < ALIKE for other in kept.values()):
            kept[name] = ink
        if len(kept) == MOST_FAMILIES:
            break
    return list(kept)


def levels_of(character: str) -> tuple[str, str, str, str, str]:
    """Family of scripts, script, kind, base and name of a character.

    >>> levels_of("ắ")[:4]
    ('Europe', 'Latin', 'lowercase', 'LATIN SMALL LETTER A')
    """
    data = _unicode()
    code = data.script(character)
    family = _FAMILY_OF.get(code, "symbols")
    script = data.block(character) if family == "symbols" else data.script_name(code)
    name = unicodedata.name(character)
    kind = KINDS.get(unicodedata.category(character), "punctuation")
    return family, script, kind, _base(character), name


def _base(character: str) -> str:
    """Name of the letter or sign without marks, style and form.

    >>> _base("Ø"), _base("①"), _base("ሁ")
    ('LATIN CAPITAL LETTER O', 'DIGIT ONE', 'ETHIOPIC SYLLABLE H')
    """
    plain = unicodedata.normalize("NFKD", character)[0]
    # The decomposition of a spacing mark starts with a space.
    name = unicodedata.name(character if plain == " " else plain)
    return _SYLLABLE.sub(r"\1", _FORM.sub("", name))


def _is_wanted(character: str) -> bool:
    if unicodedata.category(character)[0] in "CZ" or unicodedata.name(character, None) is None:
        return False
    return _unicode().script(character) not in _LEFT_OUT


def _regular_fonts(unpacked: Path, progress: StageProgress) -> dict[str, Font]:
    """The font of each family that is nearest to upright, of normal width and weight."""
    files = sorted(path for path in unpacked.rglob("*") if path.suffix.lower() in (".ttf", ".otf"))
    best: dict[str, tuple[tuple[Any, ...], Font]] = {}
    # It warns of every small fault of old fonts.
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    for done, file in enumerate(files, start=1):
        progress("read fonts", done, len(files))
        if (found := _read_font(file, unpacked)) is not None:
            rank, font = found
            if font.name not in best or rank < best[font.name][0]:
                best[font.name] = found
    if not best:
        raise FetchError("the packages of glyphs hold no fonts")
    return {name: font for name, (_, font) in sorted(best.items())}


def _read_font(file: Path, unpacked: Path) -> tuple[tuple[Any, ...], Font] | None:
    """A font and how far it is from a regular one; None where it is not for Unicode, or broken."""
    try:
        from fontTools.ttLib import TTFont, TTLibError
    except ImportError:
        raise MissingExtraError("fontTools", "data") from None
    inside = file.relative_to(unpacked)
    try:
        with TTFont(file, lazy=True) as font:
            names, style = font["name"], font["OS/2"]
            name = names.getDebugName(16) or names.getDebugName(1) or ""
            characters = frozenset(filter(_is_wanted, map(chr, font.getBestCmap() or ())))
            distance = abs(style.usWidthClass - 5), abs(style.usWeightClass - 400)
            rank = bool(style.fsSelection & 1), *distance, inside.as_posix()
        _opened(file, 16)
    # Old fonts break the format in many ways; fontTools raises whatever its parsers run into.
    except (TTLibError, OSError, KeyError, ValueError, AssertionError, struct.error):
        return None
    if not name.strip() or not characters or NOT_UNICODE.search(f"{name} "):
        return None
    return rank, Font(name.strip(), file, inside.parts[0], characters)


def _credit(package: str, archive: Path, unpacked: Path, folder: Path) -> str:
    """Keep the package's copyright file, and name its licences."""
    source = unpacked / package / "usr/share/doc" / package / "copyright"
    kept = folder / "licences" / f"{package}.txt"
    version = archive.name.split("_")[1].replace("%3a", ":")
    if not source.is_file():
        raise FetchError(f"the package {archive} has no copyright file")
    kept.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, kept)
    text = source.read_text(encoding="utf-8", errors="replace")
    parts = [part for part in text.split("\n\n") if not re.search(r"^Files: *debian/", part, re.MULTILINE)]
    found = dict.fromkeys(
        match for part in parts for match in re.findall(r"^License: *(\S.*?) *$", part, re.MULTILINE)
    )
    return f"- {package} {version}: {', '.join(found) or f'see licences/{package}.txt'}\n"


def _file_name(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-").lower()


def _unicode() -> Any:
    """Scripts and blocks, which the standard library lacks."""
    try:
        from fontTools import unicodedata as data
    except ImportError:
        raise MissingExtraError("fontTools", "data") from None
    return data
