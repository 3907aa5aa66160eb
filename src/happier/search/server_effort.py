"""How far a server's approximate search looks: everywhere, and in branches, where a filter hides rows."""

from __future__ import annotations

from typing import TypeVar

from happier.search.engine import SearchScope
from happier.search.settings import ServerSettings

# A scan of a branch of more rows would take longer than a user waits.
MAX_SCAN_ROWS = 2_000_000
Kept = TypeVar("Kept", bound=ServerSettings)


def effort_in(kept: ServerSettings, scope: SearchScope, *, most: int) -> int:
    """How far to look: a filter hides most of what the graph walks over, so walk further by as much.

    Args:
        kept: settings of the engine.
        scope: what may be returned.
        most: the highest effort that the server takes.
    """
    rows = len(scope.vectors)
    effort = kept.effort
    if scope.positions is not None:
        effort = effort * kept.branch_effort * rows // max(1, len(scope.positions))
    return max(1, min(most, rows, effort))


def raise_effort(kept: Kept, *, filtered: bool, most: int, scan_rows: int) -> Kept | None:
    """Settings that look twice as far, up to what the server takes; then larger branches are scanned here.

    Args:
        kept: settings of the engine.
        filtered: whether branches are to be searched harder, or everything.
        most: the highest effort that the server takes.
        scan_rows: branches of up to this many rows are scanned anyway.

    Returns:
        None where it cannot look further.
    """
    name = "branch_effort" if filtered else "effort"
    raised = min(most, 2 * getattr(kept, name))
    if kept.effort * (kept.branch_effort if filtered else 1) >= most:
        if not filtered or kept.scan_rows >= MAX_SCAN_ROWS:
            return None
        name, raised = "scan_rows", 4 * max(kept.scan_rows, scan_rows, 64)
    return kept.model_copy(update={name: raised})
