"""What the clients of one room say about themselves: names, cursors, selections. Pure: no clock, no connections.

A client has a number, a clock that rises with each state that it announces, and a state: JSON, or nothing once it is
gone. The clients of other nodes are known from those nodes' whispers, each of which has all clients of its node.

Browsers ignore a state whose clock they know. So a client that was told to be gone, as when its tab has changed nodes
or dialled again, or a link was down, is not seen again before it says something with a higher clock. A node that sees
that *objects*: its whisper names the client as gone. The client's own node passes that on to the client only, and
y-protocols answers at once with a higher clock.

    a client's announcement ──> Awareness.announce ──┐                       ┌──> every client of this node
    a node's whisper ─────────> Awareness.hear ──────┴──> what has changed ──┴──> whispered: this node's clients
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from crdtcast.adapters.pycrdt.rooms.messages import MOST, Reader, joined, sized
from crdtcast.adapters.pycrdt.update import number
from crdtcast.exceptions import RemoteProtocolError

MAX_STATE = 4096
"""Most bytes of the state of one client."""
MAX_CLIENTS_OF_ONE = 16
"""Most clients that one connection announces: a browser's tabs tell each other's states, too."""
MAX_CLIENTS = 1024
"""Most clients of one node in one room."""
MAX_TOLD = 16 * MAX_CLIENTS
"""Most clients in one message: y-websocket tells on what it hears of the clients of all nodes."""
MAX_CLOCK = 2**32
"""States with a higher clock are ignored: who answers to one could not write its own any more."""
_MOST_GONE = 1024
_GONE = "null"


class ClientState(NamedTuple):
    """One client: its number, its clock, and its state as JSON; `null` if it is gone."""

    client: int
    clock: int
    state: str

    @property
    def is_gone(self) -> bool:
        """Whether the client is gone."""
        return self.state == _GONE


def encode(states: Iterable[ClientState]) -> bytes:
    """As clients send it to each other."""
    return joined(
        number(each.client) + number(each.clock) + sized(each.state.encode()) for each in states
    )


def decode(raw: bytes) -> list[ClientState]:
    """The inverse of `encode`, without states beyond `MAX_CLOCK`. Raises RemoteProtocolError, also if a state is not
    JSON, or is too long.
    """
    reader = Reader(raw)
    count = reader.number()
    if count > MAX_TOLD:
        raise RemoteProtocolError(f"the states of {count:,} clients, where {MAX_TOLD:,} fit in")
    states = []
    for _ in range(count):
        client, clock, state = reader.number(), reader.number(MOST + 1), reader.text()
        checked = ClientState(client, clock, _checked(state))
        if clock <= MAX_CLOCK:
            states.append(checked)
    if not reader.is_at_end:
        raise RemoteProtocolError("states of clients with more bytes than belong to them")
    return states


def _checked(state: str) -> str:
    if len(state.encode()) > MAX_STATE:
        raise RemoteProtocolError(
            f"a client's state of {len(state):,} characters: at most {MAX_STATE:,} bytes fit in"
        )
    try:
        value = json.loads(state, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError("a client's state that is not JSON") from error
    return _GONE if value is None else state


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


class _Announced(NamedTuple):
    """A client of this node: what it announced, through which connection, and when."""

    client: ClientState
    by: object
    at: float


class Awareness:
    """The clients of one room, at one node.

    All methods return the clients of which something else is known now, for the connections of this node.
    """

    def __init__(self) -> None:
        self._own: dict[int, _Announced] = {}
        self._remote: dict[str, dict[int, ClientState]] = {}
        self._gone: OrderedDict[int, int] = OrderedDict()
        """The clock of clients that are gone, those that went first at the front."""
        self._objections: dict[str, dict[int, int]] = {}
        """Node -> client -> the clock up to which the node's clients do not see it."""

    # What is known

    def known(self) -> list[ClientState]:
        """The present state of each client."""
        clients = {*self._own}.union(*self._remote.values())
        return [state for client in sorted(clients) if (state := self.state(client)) is not None]

    def state(self, client: int) -> ClientState | None:
        """The present state of one client: the one with the highest clock. None if nothing is known of it."""
        found = self._newest(client)
        clock = self._gone.get(client)
        if clock is None or (found is not None and found.clock >= clock):
            return found
        return ClientState(client, clock, _GONE)

    def _newest(self, client: int) -> ClientState | None:
        """Of what this node and the others have of the client, what is newest."""
        found = [table[client] for table in self._remote.values() if client in table]
        if (own := self._own.get(client)) is not None:
            found.append(own.client)
        return max(found, key=lambda each: each.clock, default=None)

    @property
    def own(self) -> list[ClientState]:
        """The clients of this node, for the others."""
        return [each.client for each in self._own.values()]

    def objections(self) -> list[ClientState]:
        """Clients of other nodes that those of this one do not see before they have a higher clock."""
        found = {}
        for table in self._remote.values():
            for client, each in table.items():
                clock = self._gone.get(client)
                if clock is not None and clock >= each.clock:
                    found[client] = ClientState(client, clock, _GONE)
        return [each for client, each in sorted(found.items()) if client not in self._own]

    # What happens

    def announce(self, by: object, states: Iterable[ClientState], now: float) -> "Announcement":
        """A connection announces clients: its own, or what it has heard of others. Only what is newer counts."""
        changed: list[int] = []
        late: list[ClientState] = []
        room = self._room_of(by)
        for each in states:
            known = self.state(each.client)
            if known is not None and each.clock <= known.clock:
                own = self._own.get(each.client)
                if each == (*known[:2], _GONE) and own is not None and own.by is by:
                    changed += self._remove(each.client)
                elif known.is_gone and not each.is_gone:
                    late.append(known)
                continue
            if each.is_gone:
                if each.client in self._own:
                    self._note_gone(each.client, each.clock)
                    changed += self._remove(each.client)
                continue
            if each.client not in self._own:
                if room <= 0:
                    continue
                room -= 1
            late += self._objected(each)
            self._own[each.client] = _Announced(each, by, now)
            self._gone.pop(each.client, None)
            changed.append(each.client)
        return Announcement(changed, late)

    def _objected(self, state: ClientState) -> list[ClientState]:
        """What to tell a client that others do not see with the clock that it has."""
        clocks = [table.get(state.client, -1) for table in self._objections.values()]
        highest = max(clocks, default=-1)
        return [ClientState(state.client, highest, _GONE)] if highest >= state.clock else []

    def _room_of(self, by: object) -> int:
        """How many more clients a connection may announce."""
        of_one = sum(each.by is by for each in self._own.values())
        return min(MAX_CLIENTS_OF_ONE - of_one, MAX_CLIENTS - len(self._own))

    def left(self, by: object) -> list[int]:
        """A connection has ended: the clients that it announced are gone."""
        mine = [client for client, each in self._own.items() if each.by is by]
        return [client for each in mine for client in self._remove(each)]

    def expire(self, before: float) -> list[int]:
        """Clients of this node that have announced nothing since that time are gone."""
        old = [client for client, each in self._own.items() if each.at < before]
        return [client for each in old for client in self._remove(each)]

    def hear(self, node: str, states: Iterable[ClientState]) -> list[int]:
        """All clients that another node has, none if it is silent. Those that it had before and has no more are
        gone. Those that it names as gone are its objections.
        """
        told = list(states)
        before = self._remote.pop(node, {})
        now = {each.client: each for each in told if not each.is_gone}
        if now:
            self._remote[node] = now
        self._objections.pop(node, None)
        if objections := {each.client: each.clock for each in told if each.is_gone}:
            self._objections[node] = objections
        changed = []
        for client in now.keys() | before.keys():
            old, new = before.get(client), now.get(client)
            if old == new:
                continue
            if new is None and old is not None:
                self._lost(client, old.clock)
            changed.append(client)
        return sorted(changed)

    def objected(self) -> list[tuple[Any, ClientState]]:
        """Connections with a client that another node's do not see, and what to tell them."""
        return [
            (own.by, state)
            for client in {client for table in self._objections.values() for client in table}
            if (own := self._own.get(client)) is not None
            for state in self._objected(own.client)
        ]

    def _remove(self, client: int) -> list[int]:
        self._lost(client, self._own.pop(client).client.clock)
        return [client]

    def _lost(self, client: int, clock: int) -> None:
        """One of those who have the client has it no more. It is gone unless another one has what is as new."""
        left = self._newest(client)
        if left is None or left.clock < clock:
            self._note_gone(client, clock)

    def _note_gone(self, client: int, clock: int) -> None:
        gone = max(clock, self._gone.pop(client, 0))
        self._gone[client] = gone
        while len(self._gone) > _MOST_GONE:
            self._gone.popitem(last=False)


class Announcement(NamedTuple):
    """What an announcement has changed.

    changed: the clients of which something else is known now.
    late: clients that the connection takes for present, with a clock that is over: it must be told, so that a client
        that is back chooses a higher one.
    """

    changed: list[int]
    late: list[ClientState]


def fitting(states: Iterable[ClientState], most: int) -> Mapping[int, ClientState]:
    """As many of these as fit into so many bytes, encoded."""
    found: dict[int, ClientState] = {}
    left = most - 8
    for each in states:
        left -= len(each.state.encode()) + 24
        if left < 0:
            break
        found[each.client] = each
    return found
