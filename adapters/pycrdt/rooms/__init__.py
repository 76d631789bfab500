"""Rooms for browsers: the y-websocket protocol, in front of objects of type `YDoc` (docs/rooms.md)."""
