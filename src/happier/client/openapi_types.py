"""Python types of an OpenAPI document: one ``TypedDict`` for each of its schemas.

    python -m happier.client.openapi_types < openapi.json > src/happier/client/types.py

makes `happier.client.types` anew from what a server answers at ``/api/openapi.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

_HEADER = '''"""The shapes of the JSON API; made from its description by `happier.client.openapi_types`."""

from __future__ import annotations

from typing import TypedDict
'''
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def typed_dicts(document: Mapping[str, Any]) -> str:
    """The source of a module with the types.

    >>> shape = {"properties": {"k": {"type": "integer"}}, "required": ["k"], "description": "A number."}
    >>> print(typed_dicts({"components": {"schemas": {"One": shape}}}).partition("TypedDict")[2].strip())
    class One(TypedDict):
        \"\"\"A number.\"\"\"
    <BLANKLINE>
        k: int
    """
    schemas = document["components"]["schemas"]
    return _HEADER + "".join(
        _typed_dict(name, schema)
        for name, schema in sorted(schemas.items())
        if "properties" in schema and not name.startswith(("Body_", "HTTPValidationError", "ValidationError"))
    )


def _typed_dict(name: str, schema: Mapping[str, Any]) -> str:
    lines = [f"    {key}: {_type(value)}" for key, value in schema["properties"].items()]
    text = " ".join(schema.get("description", name).split())
    return f'\n\nclass {name}(TypedDict):\n    """{text}"""\n\n' + "\n".join(lines) + "\n"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list[{_type(schema.get('items', {}))}]"
    if schema.get("type") == "object":
        return f"dict[str, {_type(schema.get('additionalProperties', {}))}]"
    return _SIMPLE.get(schema.get("type", ""), "object")


if __name__ == "__main__":
    sys.stdout.write(typed_dicts(json.load(sys.stdin)))
