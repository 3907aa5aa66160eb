"""The page's modules as few files: a browser would fetch some twenty, one import after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping

# All that the modules of the page use of JavaScript's `import` and `export`; anything else is refused.
_IMPORT = re.compile(r'^import (?:\* as (\w+)|(\{ \w+(?:, \w+)* \})) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b(?!\().*", re.MULTILINE)
_LATER = re.compile(r'import\("\./(\w+)\.js"\)')


def bundled(sources: Mapping[str, str], entry: str, *, folder: str = "static") -> dict[str, str]:
    """The modules that a page loads: the entry with all that it needs, and those that are loaded later.

    Each module of the entry is the object of what it exports, named after it with a ``$``. The entry stands
    in the page itself and leaves those objects in ``modules``, where a module that is loaded later finds
    them: it must see the same state as the page.

    Args:
        sources: modules by name, without ``.js``. They import each other by such lines as
            ``import { a, b } from "./c.js";`` and export functions, constants and classes in place.
        entry: name of the first one.
        folder: where the page finds those that are loaded later.

    Raises:
        ValueError: a module imports or exports in another way.
    """
    for name, source in sources.items():
        if other := _OTHER.search(_EXPORT.sub("", _IMPORT.sub("", source))):
            raise ValueError(f"{name}.js: cannot bundle {other[0]!r}")
    core = _needed(sources, [entry])
    first = [_as_object(name, sources[name]) for name in core[:-1]]
    names = ", ".join(f"${name}" for name in core[:-1])
    shared = f"globalThis.modules = {{ {names} }};\n"
    joined = "".join([*first, shared, _IMPORT.sub(_constant, sources[entry])])
    files = {entry: _LATER.sub(rf'import("./{folder}/\1.js")', joined)}

    def constant(found: re.Match[str]) -> str:
        return found[0] if found[3] not in core else _constant(found, "modules.")

    starts = [name for one in core for name in _LATER.findall(sources[one])]
    later = [name for name in _needed(sources, starts) if name not in core]
    return files | {name: _IMPORT.sub(constant, sources[name]) for name in later}


def _needed(sources: Mapping[str, str], names: list[str]) -> list[str]:
    """The modules and all that they import, each after those that it imports."""
    found: list[str] = []
    for name in names:
        imports = [one[3] for one in _IMPORT.finditer(sources[name])]
        found += [one for one in [*_needed(sources, imports), name] if one not in found]
    return found


def _as_object(name: str, source: str) -> str:
    inside = _EXPORT.sub("", _IMPORT.sub(_constant, source))
    return f"const ${name} = (() => {{\n{inside}return {{ {', '.join(_EXPORT.findall(source))} }};\n}})();\n"


def _constant(found: re.Match[str], of: str = "") -> str:
    return f"const {found[1] or found[2]} = {of}${found[3]};"
