"""Yjs documents of pycrdt, replicated: `YDoc` is a type like any other (docs/pycrdt.md)."""

from crdtcast.extras import lacks

try:
    import pycrdt  # noqa: F401
except ModuleNotFoundError as _missing:
    raise lacks("pycrdt", _missing) from None

from crdtcast.adapters.pycrdt.errors import MissingUpdatesError
from crdtcast.adapters.pycrdt.follower import Applied
from crdtcast.adapters.pycrdt.handle import SyncYDocHandle, Updates, YDocBatchHandle, YDocHandle
from crdtcast.adapters.pycrdt.live import LiveDocument, SyncLiveDocument
from crdtcast.adapters.pycrdt.rooms.channels import Access, Channel, CloseCode, Visit, anyone
from crdtcast.adapters.pycrdt.rooms.service import Rooms
from crdtcast.adapters.pycrdt.rooms.session import RoomLimits
from crdtcast.adapters.pycrdt.ydoc import YDoc

__all__ = [
    "Access",
    "Applied",
    "Channel",
    "CloseCode",
    "LiveDocument",
    "MissingUpdatesError",
    "RoomLimits",
    "Rooms",
    "SyncLiveDocument",
    "SyncYDocHandle",
    "Updates",
    "Visit",
    "YDoc",
    "YDocBatchHandle",
    "YDocHandle",
    "anyone",
]
