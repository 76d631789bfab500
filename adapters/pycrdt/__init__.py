"""Yjs documents of pycrdt, replicated: `YDoc` is a type like any other (docs/pycrdt.md)."""

from crdtcast.adapters.pycrdt.errors import MissingUpdatesError
from crdtcast.adapters.pycrdt.follower import Applied
from crdtcast.adapters.pycrdt.handle import SyncYDocHandle, Updates, YDocBatchHandle, YDocHandle
from crdtcast.adapters.pycrdt.live import LiveDocument, SyncLiveDocument
from crdtcast.adapters.pycrdt.ydoc import YDoc

__all__ = [
    "Applied",
    "LiveDocument",
    "MissingUpdatesError",
    "SyncLiveDocument",
    "SyncYDocHandle",
    "Updates",
    "YDoc",
    "YDocBatchHandle",
    "YDocHandle",
]
