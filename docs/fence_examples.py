"""Shows the docstrings' examples as code: they are plain doctests, which Markdown would read as quotes."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(>>> .*(?:\n(?!\n|$).*)*)", flags=re.MULTILINE)


class FenceExamples(griffe.Extension):
    """Puts each run of lines that starts with a prompt into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        """Change the docstring of every object before it is parsed."""
        del options
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\1\n```", obj.docstring.value)
