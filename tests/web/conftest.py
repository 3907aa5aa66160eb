"""A small catalogue of drawn shapes, servers of it, and a page."""

import pytest
from catalogue import explorer, photo, place

__all__ = ["comparison", "explorer", "four", "page", "photo", "place"]


@pytest.fixture(scope="session")
def comparison(place):
    from happier.web.server import open_explorer

    return open_explorer(place / "a.index", place / "b.index")


@pytest.fixture(scope="session")
def four(place):
    """Four models; two of them are the same."""
    from happier.web.server import open_explorer

    return open_explorer(place / "a.index", [place / f"{name}.index" for name in "bab"])


@pytest.fixture
def page(browser):
    """A fresh page; a test fails if anything was logged as an error or reached for another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(90_000)  # the machine may be busy
    problems = []
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if "//127.0.0.1" in request.url or request.url.startswith("blob:")
            else problems.append(request.url)
        ),
    )
    page.problems = problems
    yield page
    context.close()
    assert problems == []
