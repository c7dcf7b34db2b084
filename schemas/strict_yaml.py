"""YAML without its traps: a key stands once in a map (PyYAML silently keeps the last one) and is text as written."""

import datetime
import json
from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["parse_yaml", "written"]


class _Loader(yaml.SafeLoader):
    pass


def _map_of_names(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        line = f"line {key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise ValueError(f"{line}: a key is a plain name")
        if key_node.value in seen:
            raise ValueError(f"{line}: key {key_node.value!r} stands twice in one map")
        seen.add(key_node.value)
    loader.flatten_mapping(node)  # `<<: *anchor`
    # The text of a key, not its YAML value: `no`, `1` and `010` are names like any other.
    return {key_node.value: loader.construct_object(value_node, deep=True) for key_node, value_node in node.value}


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _map_of_names)


def parse_yaml(text: str | bytes) -> Any:
    """The value of one YAML or JSON document; bytes are UTF-8, or UTF-16 with a byte order mark.

    Raises:
        ValueError: not YAML, or a key stands twice; the message names the line.
    """
    # JSON is YAML on paper only: PyYAML refuses tabs and takes an escaped emoji for two half characters.
    try:
        return json.loads(text, object_pairs_hook=_object_of_names)
    except (json.JSONDecodeError, UnicodeDecodeError):
        pass  # YAML, then
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        raise ValueError(_told(error)) from None
    except yaml.YAMLError as error:  # a character that may stand nowhere
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


def _object_of_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"key {twice!r} stands twice in one map")
    return names


def _told(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    if "'\\t'" in problem:
        return f"{place}a tab; indent with spaces"
    return f"{place}no YAML: {problem}; look for a missing quote, bracket, colon or indentation there or just before"


def written(value: Any) -> str:
    """What stands in a file, in the words of who wrote it, for messages: `nothing`, `a list`, `the number 5`."""
    match value:
        case None:
            words = "nothing"
        case bool():
            words = "true (as YAML reads a bare yes, on or true)" if value else "false (as YAML reads a bare no or off)"
        case int() | float():
            words = f"the number {value}"
        case str():
            words = repr(value if len(value) <= 60 else value[:60] + "...")
        case Mapping():
            words = "a map"
        case list() | tuple():
            words = "a list"
        case datetime.date():
            words = f"the date {value}"
        case _:
            words = f"a value of type {type(value).__name__}"
    return words
