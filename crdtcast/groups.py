"""Several independent groups over one set of links: `open_links`.

Groups know nothing of each other: each has its own members, its own engine, its own causality. Two
processes have one connection, whatever groups they have in common.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from crdtcast.broadcast import Broadcasting
from crdtcast.channel import Channel
from crdtcast.engine import Engine
from crdtcast.options import Address, NodeOptions, parse_address
from crdtcast.peers import LinkStatus
from crdtcast.process import Process
from crdtcast.replica import fresh_incarnation, peer_addresses
from crdtcast.running import running
from crdtcast.shared import SharedLinks


class GroupNode(Broadcasting):
    """One member of a group whose members are fixed, on shared links."""

    engine: Engine

    def __init__(self, channel: Channel, members: Iterable[str]) -> None:
        super().__init__(channel)
        self.channel = channel
        self.engine = Engine(fresh_incarnation(channel.name), {channel.name, *members})
        channel.on_work = self._wake
        channel.start(self.engine)

    @property
    def group(self) -> str:
        return self.channel.group

    def close(self) -> None:
        """Take part no more; what this member had not received is lost to it."""
        self.channel.close()
        self._close()


class GroupLinks:
    """The links of one process, and the groups on them. Made by `open_links`."""

    def __init__(self, shared: SharedLinks) -> None:
        self.shared = shared

    @property
    def name(self) -> str:
        return self.shared.name

    @property
    def address(self) -> Address:
        """Host and port where other processes reach this one."""
        return self.shared.address

    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other process."""
        return self.shared.status()

    def group(
        self, name: str, *, members: Iterable[str], process: Process | None = None
    ) -> GroupNode:
        """Take part in the group of that name, whose members are the processes of these names.

        members: all of them; the own name may be missing. process: takes all events.

        Raises LocalProtocolError if the group is open here already. A group that another process
        does not have costs nothing; that is said in the log, once.
        """
        node = GroupNode(self.shared.open(name), members)
        if process is not None:
            self.shared.spawn(partial(node.run, process))
        return node


@asynccontextmanager
async def open_links(
    name: str,
    *,
    listen: str = "127.0.0.1:0",
    peers: Mapping[str, str | Address | None] | Sequence[str | Address] = (),
    network: str = "default",
    advertise: str | None = None,
    logger: logging.Logger | None = None,
    **options: Any,
) -> AsyncIterator[GroupLinks]:
    """The links of a process, for as long as the `with` block runs; open groups on them.

    name: of this process, in all its groups. peers: processes to dial: name -> address, or only
        addresses. Where others are is learned from those. network: only processes that say the same
        are linked. advertise: host and port where others reach this one, if it listens on a
        wildcard. options: of `NodeOptions`.
    """
    given: Mapping[str, Address | None] | list[Address]
    if isinstance(peers, Mapping):
        given = peer_addresses(peers)
    else:
        given = [parse_address(p) if isinstance(p, str) else p for p in peers]
    node_options = NodeOptions(
        name=name, listen=parse_address(listen), group=network, peers=given, **options
    )
    shared = SharedLinks(
        node_options,
        advertise=None if advertise is None else parse_address(advertise),
        logger=logger,
    )
    async with running(shared):
        yield GroupLinks(shared)
