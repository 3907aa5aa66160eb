"""What axe-core finds on a page: missing names, wrong roles, faint text."""

from __future__ import annotations

import tarfile
from functools import cache

import pytest
from platformdirs import user_cache_path

from happier.data.sources.package_clients import NpmPackage, fetch_npm
from happier.errors import FetchError

AXE = NpmPackage(
    "axe-core",
    "4.14.0",
    "sha512-9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
)
SCHEMES = ("light", "dark")


@cache
def _axe() -> str:
    with tarfile.open(fetch_npm(AXE, user_cache_path("happier") / "downloads")) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def serious_findings(page) -> dict[str, list[str]]:
    """Serious and critical findings in both themes, each with the elements; empty where there are none.

    Skips the test where npm cannot fetch axe-core. A page with a content security policy needs a context with
    ``bypass_csp=True``.
    """
    try:
        script = _axe()
    except FetchError as error:
        pytest.skip(f"axe-core cannot be fetched: {error}")
    found = {}
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.evaluate(script)
        for one in page.evaluate("() => axe.run().then((results) => results.violations)"):
            if one["impact"] in ("serious", "critical"):
                elements = [f"{node['html'][:120]}: {node['failureSummary'][:160]}" for node in one["nodes"]]
                found[f"{scheme}: {one['help']}"] = elements[:5]
    return found
