"""The list of results that the explorer shows in a browser: which images it has, how it grows, its CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

RESULT = ".results .card:not(.skeleton):not([aria-busy] *)"  # of a list that is drawn to its end


def ids_of(page: Any, where: str = RESULT) -> list[str]:
    """Ids of the images shown, in order."""
    ids: list[str] = page.eval_on_selector_all(where, "cards => cards.map((one) => one.dataset.id)")
    return ids


def scroll_until(page: Any, count: int, what: str = RESULT) -> None:
    """Scroll down until at least so many results are shown."""
    page.mouse.move(200, 400)
    while (shown := len(ids_of(page, what))) < count:
        page.mouse.wheel(0, 30_000)
        page.wait_for_function("([what, n]) => document.querySelectorAll(what).length > n", arg=[what, shown])


def copied(page: Any) -> list[dict[str, str]]:
    """What the page put on the clipboard, as rows."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as CSV").click()
    page.get_by_text("CSV copied").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    return list(csv.DictReader(io.StringIO(text.replace("\r\n", "\n"))))
