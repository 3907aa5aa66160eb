"""The explorer page and its server."""
