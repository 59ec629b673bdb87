"""`make docs`: write the field tables of formats.md from the declarations in the code.

The text above the marker in formats.md is written by hand, what follows it by this script.
"""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from rocescope.analyzer.results.analysis import Analysis, LiveInterval
from rocescope.report.files.packets import packet_schema

MARKER = "<!-- What follows is written by `make docs`. -->\n"
PAGE = Path(__file__).parent / "formats.md"


def type_name(schema: dict[str, Any]) -> str:
    """A JSON Schema type in words: `integer or null`, `array of Flow`."""
    if "anyOf" in schema:
        return " or ".join(type_name(option) for option in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        return f"array of {type_name(schema['items'])}"
    if schema["type"] == "object":
        return f"object of {type_name(schema['additionalProperties'])}"
    return str(schema["type"])


def record_table(name: str, schema: dict[str, Any]) -> str:
    told = cleandoc(schema.get("description", ""))
    lines = [f"### {name}", "", told, "", "| field | type | meaning |"]
    lines.append("|---|---|---|")
    for field, declared in schema["properties"].items():
        meaning = declared.get("description", "")
        lines.append(f"| `{field}` | {type_name(declared)} | {meaning} |")
    return "\n".join(lines)


def packet_columns() -> str:
    lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    for field in packet_schema():
        told = {key.decode(): text.decode() for key, text in field.metadata.items()}
        meaning = told["meaning"].replace("|", "\\|")
        lines.append(f"| `{field.name}` | {field.type} | {told['unit']} | {meaning} |")
    return "\n".join(lines)


def tables() -> str:
    """The generated part of the page."""
    _, records = msgspec.json.schema_components([Analysis, LiveInterval])
    first = {"Analysis": records.pop("Analysis")}
    parts = ["## Records of the JSON output", ""]
    parts += [record_table(name, schema) + "\n" for name, schema in (first | records).items()]
    parts += ["## Columns of the packet table", "", packet_columns(), ""]
    return "\n".join(parts)


def page() -> str:
    """formats.md as it should be."""
    by_hand, marker, _ = PAGE.read_text().partition(MARKER)
    return by_hand + MARKER + "\n" + tables()


if __name__ == "__main__":
    PAGE.write_text(page())
