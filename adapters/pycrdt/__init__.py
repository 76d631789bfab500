"""Yjs documents of pycrdt, replicated: `YDoc` is a type like any other (docs/pycrdt.md)."""

from crdtcast.adapters.pycrdt.errors import MissingUpdatesError
from crdtcast.adapters.pycrdt.follower import Applied
from crdtcast.adapters.pycrdt.ydoc import YDoc

__all__ = ["Applied", "MissingUpdatesError", "YDoc"]
