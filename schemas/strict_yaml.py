"""YAML as its own rule says: a key stands once in a map (PyYAML silently keeps the last one)."""

from typing import Any

import yaml

__all__ = ["parse_yaml"]


class _Loader(yaml.SafeLoader):
    pass


def _map_without_duplicates(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = f"line {key_node.start_mark.line + 1}"
        if isinstance(key, list | dict):
            raise ValueError(f"{line}: a key is a plain name")
        if key in seen:
            raise ValueError(f"{line}: key {key!r} stands twice in one map")
        seen[key] = loader.construct_object(value_node, deep=True)
    return seen


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _map_without_duplicates)


def parse_yaml(text: str) -> Any:
    """The value of one YAML document (JSON is YAML).

    Raises:
        ValueError: not YAML, or a key stands twice; the message names the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
