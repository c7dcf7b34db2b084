"""Schemas that a schema refers to by name (a registry's `references`), put in where they are first named.

The result stands on its own: it can be registered anywhere, and each type is defined once even if two references bring
it along (a diamond).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from slotstream.schemas.avro.node import NAMED
from slotstream.schemas.avro.rules import full_name

__all__ = ["inline"]


def inline(raw: Any, references: Iterable[Any]) -> Any:
    """`raw` with every type that `references` define in the place of its first use; both are parsed JSON."""
    library: dict[str, dict[str, Any]] = {}
    for reference in references:
        _collect(reference, "", library)
    return _Inliner(library).walk(raw, "")


def _name_of(raw: Mapping[str, Any], namespace: str) -> str:
    return full_name(str(raw.get("name")), str(raw.get("namespace", namespace)))


def _collect(raw: Any, namespace: str, library: dict[str, dict[str, Any]]) -> None:
    """Every named type that is defined in `raw`, under its full name, with that name written out."""
    if isinstance(raw, list):
        for branch in raw:
            _collect(branch, namespace, library)
    elif isinstance(raw, dict):
        if raw.get("type") in NAMED:
            namespace, _, simple = (full := _name_of(raw, namespace)).rpartition(".")
            library.setdefault(full, {**raw, "name": simple, "namespace": namespace})
            for field in raw.get("fields") or ():
                _collect(field.get("type"), namespace, library)
        else:
            _collect(raw.get("items", raw.get("values")), namespace, library)


class _Inliner:
    def __init__(self, library: Mapping[str, dict[str, Any]]) -> None:
        self._library = library
        self._defined: set[str] = set()

    def walk(self, raw: Any, namespace: str) -> Any:
        if isinstance(raw, str):
            return self._reference(raw, namespace)
        if isinstance(raw, list):
            return [self.walk(branch, namespace) for branch in raw]
        if not isinstance(raw, dict):
            return raw
        kind = raw.get("type")
        if kind in NAMED:
            return self._definition(raw, namespace)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            return {**raw, key: self.walk(raw.get(key), namespace)}
        walked = self._reference(kind, namespace) if isinstance(kind, str) else kind
        return raw if walked == kind else walked  # {"type": "Name"} is a reference too

    def _reference(self, name: str, namespace: str) -> Any:
        full = full_name(name, namespace)
        full = full if full in self._library else name.removeprefix(".")
        if full not in self._library:
            return name
        return full if full in self._defined else self._definition(self._library[full], "")

    def _definition(self, raw: dict[str, Any], namespace: str) -> Any:
        full = _name_of(raw, namespace)
        if full in self._defined and full in self._library:
            return full
        self._defined.add(full)
        if "fields" not in raw:
            return raw
        space = full.rpartition(".")[0]
        return {**raw, "fields": [{**field, "type": self.walk(field.get("type"), space)} for field in raw["fields"]]}
