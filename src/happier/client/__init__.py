"""A client of `happier serve`, for programs: the same calls, to wait for or to await."""

from happier.client import types
from happier.client.calls import Combination
from happier.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "Combination", "types"]
