"""Parameters that several routes share, and the refusals that they document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import StringConstraints

from happier.web import schemas

MAX_K = 200
MAX_HITS = 1000  # of a ranking, page by page
MAX_IMAGES = 16  # of a query
MISSING: dict[int | str, dict[str, Any]] = {
    404: {"model": schemas.Problem, "description": "no such image, class or index"},
}
FORBIDDEN: dict[int | str, dict[str, Any]] = {
    403: {"model": schemas.Problem, "description": "nothing can be changed, or not with this token"},
}
UPLOAD: dict[int | str, dict[str, Any]] = {
    **MISSING,
    400: {"model": schemas.Problem, "description": "not an image, damaged, or a malformed body"},
    413: {"model": schemas.Problem, "description": "too large"},
}
EVERYWHERE: dict[int | str, dict[str, Any]] = {
    422: {"model": schemas.Problem, "description": "a parameter is missing or out of range"},
    429: {"model": schemas.Problem, "description": "the server is busy"},
    503: {"model": schemas.Problem, "description": "it took too long"},
}

Side = Literal["a", "b", "c", "d"]
ModelKey = Annotated[Side, Query(description="which index: a, or b, c, d where several are compared")]
K = Annotated[int, Query(ge=1, le=MAX_K, description="how many results")]
Text = Annotated[str, Query(max_length=2048)]
ItemId = Annotated[
    str | None,
    Query(alias="id", max_length=4096, description="id of the image, where the row may have moved"),
]
Within = Annotated[str, Query(max_length=2048, description="only this branch, e.g. animals/birds")]
# A longer one could be added, and then neither be searched with nor be removed.
Id = Annotated[str, StringConstraints(max_length=4096)]
Ids = Annotated[list[Id], Query(max_length=MAX_IMAGES)]
Uploads = Annotated[list[Annotated[str, StringConstraints(max_length=64)]], Query(max_length=MAX_IMAGES)]
Label = Annotated[str | None, Query(max_length=2048, description="class of the upload")]
Offset = Annotated[int, Query(ge=0, le=10_000_000)]
Metrics = Annotated[
    bool, Query(description="how good the whole ranking is; false is faster where the index is large")
]
Version = Annotated[str, Query(max_length=64, description="state of the index, for caching")]
Limit = Annotated[int, Query(ge=1, le=200)]
