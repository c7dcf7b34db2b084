"""YAML without its traps: a key stands once in a map (PyYAML silently keeps the last one) and is text as written."""

import json
from typing import Any

import yaml

__all__ = ["parse_yaml"]


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
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


def _object_of_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"key {twice!r} stands twice in one map")
    return names
