"""A gateway's life with its server as a table: what each event does in each phase, and how a gateway comes to each."""

from pathlib import Path

import pytest

from crdtcast.adapters.redis import gateway as gateway_module
from crdtcast.adapters.redis.commit.phase import TRANSITIONS, ServerEvent, ServerPhase
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.exceptions import TransitionError
from crdtcast.phases import Lifecycle
from tests.adapters.redis.gateways import RunningGateway, options, until
from tests.adapters.redis.proxy import ProxiedConnection, Proxy

Reached = set[tuple[ServerPhase, ServerEvent]]


@pytest.mark.parametrize("event", ServerEvent)
@pytest.mark.parametrize("phase", ServerPhase)
def test_each_event_follows_the_transition_table_or_is_refused(
    phase: ServerPhase, event: ServerEvent
) -> None:
    life = Lifecycle(TRANSITIONS, phase)
    after = TRANSITIONS.get((phase, event))
    if after is None:
        with pytest.raises(TransitionError, match=rf"from {phase.name} by {event.name}$"):
            life.move(event)
        assert life.phase is phase
    else:
        assert life.move(event) is life.phase is after


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Reached:
    """What gateways have come to so far."""
    reached: Reached = set()
    move = Lifecycle.move

    def noted(life: Lifecycle[ServerPhase, ServerEvent], event: ServerEvent) -> ServerPhase:
        if life._table is TRANSITIONS:
            reached.add((life.phase, event))
        return move(life, event)

    monkeypatch.setattr(Lifecycle, "move", noted)
    return reached


@pytest.mark.process
def test_gateways_visit_every_transition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: Reached
) -> None:
    monkeypatch.setattr(gateway_module, "_CLIENTS_WAIT_SECONDS", 60.0)

    def comes_to(phase: ServerPhase, event: ServerEvent) -> None:
        until(lambda: (phase, event) in reached)

    def cut(pair: ProxiedConnection, data: bytes) -> bytes:
        pair.cut()
        return b""

    with (
        start_server(tmp_path / "server") as server,
        RawClient(server.port) as direct,
        Proxy(server.port) as proxy,
    ):
        heals = proxy.sending

        def takes_writes(takes: bool) -> None:
            wanted = "0" if takes else "1"  # there are no replicas
            direct.call("CONFIG", "SET", "min-replicas-to-write", wanted)

        takes_writes(False)
        running = RunningGateway(options(tmp_path, proxy.port))
        try:
            comes_to(ServerPhase.WAITING, ServerEvent.FIND_FULL)
            comes_to(ServerPhase.READ_ONLY, ServerEvent.FIND_FULL)
            takes_writes(True)
            committer = running.wait_ready().gateway.committer
            comes_to(ServerPhase.READ_ONLY, ServerEvent.OWN)

            with running.client() as client:
                assert client.call("INCR", "n") == 1
                comes_to(ServerPhase.READY, ServerEvent.BEGIN)
                comes_to(ServerPhase.COMMITTING, ServerEvent.END)
                takes_writes(False)
                assert isinstance(client.call("INCR", "n"), ErrorReply)
                comes_to(ServerPhase.COMMITTING, ServerEvent.LOSE)
                until(lambda: committer.phase is ServerPhase.READ_ONLY)
                assert client.call("GET", "n") == b"1"

                proxy.sending = cut
                comes_to(ServerPhase.READ_ONLY, ServerEvent.GIVE_UP)
                comes_to(ServerPhase.REFUSING, ServerEvent.GIVE_UP)
                assert isinstance(client.call("GET", "n"), ErrorReply)
                proxy.sending = heals
                comes_to(ServerPhase.REFUSING, ServerEvent.FIND_FULL)
                proxy.sending = cut
                until(lambda: committer.phase is ServerPhase.REFUSING)
                takes_writes(True)
                proxy.sending = heals
                comes_to(ServerPhase.REFUSING, ServerEvent.OWN)
                assert client.call("INCR", "n") == 2

                lose_between_commits(running)
                comes_to(ServerPhase.READY, ServerEvent.LOSE)
                comes_to(ServerPhase.WAITING, ServerEvent.OWN)
                assert client.call("INCR", "n") == 3
                monkeypatch.setattr(gateway_module, "_CLIENTS_WAIT_SECONDS", 0.05)
                proxy.sending = cut
                lose_between_commits(running)
                comes_to(ServerPhase.WAITING, ServerEvent.GIVE_UP)
                proxy.sending = heals
                until(lambda: committer.phase is ServerPhase.READY)
                assert client.call("INCR", "n") == 4
        finally:
            running.stop()
    assert reached == TRANSITIONS.keys()


def lose_between_commits(running: RunningGateway) -> None:
    """The connection ends while no commit is under way."""
    lost: list[bool] = []

    def lose() -> None:
        if not lost and running.gateway.committer.phase is ServerPhase.READY:
            running.gateway.begin_anew("made to fail")
            lost.append(True)

    def is_lost() -> bool:
        running.call(lose)
        return bool(lost)

    until(is_lost)
