"""A run: start the group, let clients write while the plan is carried out, heal everything, compare.

Its rule: in the end every acknowledged write is at every replica, once; all replicas have equal values; no metadata is
left. Before a disk is wiped or set back, its node comes to rest: data on one disk alone cannot survive that.
"""

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from crdtcast.chaos import plan as plans
from crdtcast.chaos import spaces
from crdtcast.chaos.disks import ChaosDisk, SmallDisk
from crdtcast.chaos.lateness import Lateness
from crdtcast.chaos.load import FoundByLoad, LoadClient, Promised, compare
from crdtcast.chaos.membership import ChaosMembership
from crdtcast.chaos.nodes import NODE, REFUSED, ChaosHost, LateError, MisbehavedError
from crdtcast.chaos.plan import ChaosPlan, Episode
from crdtcast.chaos.proxy import ProxyNetwork
from crdtcast.chaos.spaces import Space
from crdtcast.eventlog.check.check import check_logs
from crdtcast.exceptions import CrdtcastError

SETTLE_SECONDS = 180.0
"""How long the group may take, once everything is healed, to become equal and quiet."""

REST_SECONDS = 60.0
"""How long the others may take to acknowledge what was written at a node."""

START_SECONDS = 20.0
"""How long a node may take to find out that its disk is full, or fails."""


@dataclass(slots=True)
class ChaosOutcome:
    """The result. `wrong` are lines for people: the run has failed if there is any."""

    acknowledged: int = 0
    uncertain: int = 0
    metadata_left: int = 0
    settled: float = 0.0
    """Seconds from the end of the faults until nothing was left."""
    starts: int = 0
    refusals: int = 0
    """Nodes that ended, or did not start, because their disk was full."""
    events: int = 0
    """Events in the logs; all were checked."""
    reissued: int = 0
    """Operations that were sent again after evictions."""
    episodes: Counter[str] = field(default_factory=Counter)
    found: FoundByLoad = field(default_factory=FoundByLoad)
    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """What took too long."""
    lateness: Lateness = field(default_factory=Lateness)

    @property
    def ok(self) -> bool:
        """Whether writes were acknowledged, none was lost, doubled or different, and no metadata is left."""
        found = self.found
        clean = not (found.lost or found.doubled or found.diverged or self.wrong or self.late)
        return clean and not self.metadata_left and self.acknowledged > 0

    @property
    def too_slow(self) -> bool:
        """Whether the only failure is that something took too long, and the machine itself was late."""
        found = self.found
        harmed = found.lost or found.doubled or found.diverged or self.wrong
        return not self.ok and not harmed and self.lateness.too_slow


class Course:
    """One run in `scratch`.

    tell: gets one line for each thing that happens.
    apart: each node is in its own network namespace; this process must be in one (`spaces.enter`).
    small_disks: nodes whose disk may be full have their own file systems (after `disks.enter`).
    program: see `ChaosHost`.
    """

    def __init__(
        self,
        plan: ChaosPlan,
        scratch: Path,
        *,
        rate: float,
        tell: Callable[[str], None],
        apart: bool = False,
        small_disks: bool = False,
        program: Sequence[str] = NODE,
    ) -> None:
        self.plan = plan
        self.hosts: dict[str, ChaosHost] = {}
        self.clients: dict[str, LoadClient] = {}
        self.outcome: ChaosOutcome = ChaosOutcome()
        self._membership = ChaosMembership(self.hosts, self._ask)
        self._network = ProxyNetwork()
        self._apart = apart
        self._small_disks = small_disks
        self._scratch = scratch
        self._rate = rate
        self._tell = tell
        self._program = program
        self._begun = 0.0

    async def run(self) -> ChaosOutcome:
        """Run it and return the outcome. Every process has ended by then."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.outcome.lateness.measure)
                for name in self.plan.founders:
                    host = await self._new_host(name, nursery)
                    host.start(self._others(host))
                    await host.wait_member()
                    self._write_at(host, nursery)
                await self._carry_out(nursery)
                for client in self.clients.values():
                    await client.rest()
                await self._heal()
                await self._settle()
                await self._compare()
                nursery.cancel_scope.cancel()
            self._check_logs()
        except* LateError as errors:
            self.outcome.late += _lines(errors)
        except* MisbehavedError as errors:
            self.outcome.wrong += _lines(errors)
        finally:
            for host in self.hosts.values():
                host.end()
                host.place.close()
                host.disk.close()
        outcome = self.outcome
        for host in self.hosts.values():
            if not host.lies:
                outcome.wrong += host.crashes + host.tracebacks()
        outcome.starts = sum(host.starts for host in self.hosts.values())
        outcome.refusals = sum(host.refusals for host in self.hosts.values())
        outcome.acknowledged = sum(client.acknowledged for client in self.clients.values())
        outcome.uncertain = sum(
            each.uncertain for client in self.clients.values() for each in client.promised.values()
        )
        return outcome

    async def _new_host(self, name: str, nursery: trio.Nursery) -> ChaosHost:
        (listener,) = await trio.open_tcp_listeners(
            0, host=spaces.PROXIES if self._apart else "127.0.0.1"
        )
        place = Space(len(self.hosts) + 1) if self._apart else self._network.place(name)
        small = self._small_disks and plans.has_small_disk(name)
        disk = (SmallDisk if small else ChaosDisk)(self._scratch / name)
        host = ChaosHost(name, disk, place, listener.socket.getsockname(), self._program)
        nursery.start_soon(self._network.serve, name, place.address, listener)
        self.hosts[name] = host
        return host

    def _write_at(self, host: ChaosHost, nursery: trio.Nursery) -> None:
        client = self.clients[host.name] = LoadClient(host, self._rate)
        nursery.start_soon(client.run)

    def _others(self, host: ChaosHost) -> list[str]:
        return [h.address for h in self.hosts.values() if h is not host and h.present and h.starts]

    def _restart(self, host: ChaosHost, *, replace: bool = False) -> None:
        host.start(self._others(host), replace=replace)

    # The plan

    async def _carry_out(self, nursery: trio.Nursery) -> None:
        """Run each episode at its time, or when the earlier ones at its nodes are over. An episode of the whole group
        that is late delays all later ones. On a slow machine, episodes without time left are skipped.
        """
        self._begun = trio.current_time()
        end = self._begun + self.plan.seconds
        latest = dict.fromkeys(self.plan.founders, _over())
        late = 0.0
        async with trio.open_nursery() as episodes:
            for episode in self.plan.episodes:
                await trio.sleep_until(self._begun + episode.at + late)
                if trio.current_time() > end:
                    break
                before = [latest[name] for name in episode.concerns(latest) if name in latest]
                over = trio.Event()
                latest |= dict.fromkeys(episode.concerns(latest), over)
                if episode.kind in plans.WHOLE:
                    await self._in_turn(episode, before, over, nursery)
                    late = max(late, trio.current_time() - self._begun - episode.at - episode.lasts)
                else:
                    episodes.start_soon(self._in_turn, episode, before, over, nursery)
        await trio.sleep_until(end)

    def _say(self, line: str) -> None:
        self._tell(f"{trio.current_time() - self._begun:7.1f}  {line}")

    async def _in_turn(
        self,
        episode: Episode,
        before: Sequence[trio.Event],
        over: trio.Event,
        nursery: trio.Nursery,
    ) -> None:
        for event in before:
            await event.wait()
        if episode.kind in plans.MEMBERSHIP:
            await self._membership.whole()
        self.outcome.episodes[episode.kind] += 1
        self._say(str(episode))
        await self._episode(episode, nursery)
        over.set()

    async def _episode(self, episode: Episode, nursery: trio.Nursery) -> None:
        network, kind = self._network, episode.kind
        if kind in plans.PAIRS:
            if not self.hosts.keys() >= {episode.node, episode.other}:
                return  # one of them is late to join
            there, back = network.both(episode.node, episode.other)
            match kind:
                case plans.CUT:
                    there.cut = back.cut = True
                    network.tear(episode.node, episode.other)
                case plans.ONE_WAY:
                    there.deaf = True
                case plans.DELAY:
                    there.delay = back.delay = episode.amount / 1000
                case _:
                    network.tear(episode.node, episode.other)
            await trio.sleep(episode.lasts)
            there.cut = back.cut = there.deaf = back.deaf = False
            there.delay = back.delay = 0.0
        elif kind in (plans.STOP_ALL, plans.TWO_DEAD):
            names = self.hosts if kind == plans.STOP_ALL else (episode.node, episode.other)
            hosts = [self.hosts[name] for name in names if self.hosts[name].present]
            for host in hosts:
                host.signal(signal.SIGKILL)
            for host in hosts:
                await host.ended()
            await trio.sleep(episode.lasts)
            for host in hosts:
                self._restart(host)
        elif kind == plans.ROLLING:
            for host in [host for host in self.hosts.values() if host.present]:
                host.signal(signal.SIGTERM)
                await host.ended()
                self._restart(host)
                await host.wait_member()
        elif kind == plans.HOSTILE:
            await self._endure(episode, nursery)
        elif kind in plans.NEWCOMERS:
            host = await self._new_host(episode.node, nursery)
            self._restart(host)
            if kind == plans.JOIN_KILLED:
                await trio.sleep(episode.amount / 1000)
                await host.kill()
                await trio.sleep(episode.lasts)
                self._restart(host)
            await host.wait_member()
            self._write_at(host, nursery)
        else:
            await self._at(self.hosts[episode.node], episode)

    async def _endure(self, episode: Episode, nursery: trio.Nursery) -> None:
        """A lying member, until it is evicted. It holds no acknowledged writes, and its event log is not checked."""
        host = await self._new_host(episode.node, nursery)
        host.lies = len(self.hosts)
        self._restart(host)
        await trio.sleep(episode.lasts)  # not until ready: the others may refuse it
        host.present = False
        await host.kill()
        await self._membership.whole()

    async def _at(self, host: ChaosHost, episode: Episode) -> None:
        match episode.kind:
            case plans.KILL:
                await host.kill()
                await trio.sleep(episode.lasts)
                self._restart(host)
            case plans.PAUSE:
                host.signal(signal.SIGSTOP)
                await trio.sleep(episode.lasts)
                host.signal(signal.SIGCONT)
            case plans.LOSS:
                host.place.lose(episode.amount)
                await trio.sleep(episode.lasts)
                host.place.lose_nothing()
            case plans.HOLE:
                host.place.swallow()
                await trio.sleep(episode.lasts)
                host.place.swallow_nothing()
            case plans.FULL:
                await self._fill_up(host, episode.lasts)
            case plans.SKEW:
                host.skew_ms = episode.amount
                await host.kill()
                self._restart(host)
                await host.wait_member()
                await trio.sleep(episode.lasts)
                host.skew_ms = 0
                await host.kill()
                self._restart(host)
            case plans.SYNC:
                await self._fail_syncs(host, episode.lasts)
            case plans.WIPE:
                await self._come_to_rest(host)
                await host.kill()
                host.wipe()
                self._restart(host, replace=True)
                await host.wait_member()
                self.clients[host.name].resting = False
            case plans.RESTORED:
                await self._restore(host, episode.lasts)
            case plans.COPIED:
                await host.wait_member()
                await host.kill()
                host.save()
                host.restore()
                self._restart(host)
                await host.wait_member()
            case plans.EVICT:
                await self._write_alone(host, episode.lasts)
                await self._membership.evict(host)
                self._restart(host)
            case plans.LEAVE:
                await host.wait_member()
                await self.clients[host.name].rest()
                host.present = False
                host.may_end(0)
                await self._ask(host, "leave")
                await host.ended()

    async def _fill_up(self, host: ChaosHost, seconds: float) -> None:
        """Fill its disk while it runs and again at its restart. With room again, it must be the same incarnation."""
        before = await self._incarnation(host)
        host.fill_up()
        await trio.sleep(seconds)
        await host.kill()  # it does not end by itself if it has nothing to write
        self._restart(host)
        host.fill_up()
        with trio.move_on_after(START_SECONDS):
            await host.ended()
        await host.kill()
        host.disk.make_room()
        self._restart(host)
        after = await self._incarnation(host)
        if after != before:
            self.outcome.wrong.append(f"after a full disk {before} continues as {after}")

    async def _fail_syncs(self, host: ChaosHost, seconds: float) -> None:
        """It ends at the next sync, and continues as the same incarnation once the disk is mended: it had sent nothing
        that was not synced.
        """
        before = await self._incarnation(host)
        host.fail_syncs()
        with trio.move_on_after(START_SECONDS):
            await host.ended()
        await host.kill()
        self._restart(host)
        host.may_end(REFUSED)
        await trio.sleep(seconds)
        await host.kill()
        host.mend()
        self._restart(host)
        after = await self._incarnation(host)
        if after != before:
            self.outcome.wrong.append(f"after failed syncs {before} continues as {after}")

    async def _restore(self, host: ChaosHost, seconds: float) -> None:
        """Replace its journal by one that is some seconds older: it joins again as a new incarnation. It comes to rest
        before, because what only this disk had would be lost.
        """
        await host.wait_member()
        await host.kill()
        host.save()
        self._restart(host)
        before = await self._incarnation(host)
        await trio.sleep(seconds)
        await self._come_to_rest(host)
        await host.kill()
        host.restore()
        self._restart(host)
        after = await self._incarnation(host)
        if after == before:
            self.outcome.wrong.append(f"{before} continues with a journal of an older time")
        self.clients[host.name].resting = False

    async def _incarnation(self, host: ChaosHost) -> str:
        await host.wait_member()
        incarnation: str = (await self._ask(host, "status"))["incarnation"]
        return incarnation

    async def _come_to_rest(self, host: ChaosHost) -> None:
        """Wait until everything that was written at this node is at all members."""
        await host.wait_member()
        client = self.clients[host.name]
        await client.rest()
        name = f"count-rest-{host.name}"
        try:
            await self._ask(
                *(host, "perform"),
                name=name,
                type="counter_pn",
                operation="increment",
                args=[1],
                wait="stable",
                seconds=REST_SECONDS,
            )
        except MisbehavedError as error:
            raise LateError(str(error)) from error
        client.promised.setdefault(name, Promised()).acknowledged += 1

    async def _write_alone(self, host: ChaosHost, seconds: float) -> None:
        """Cut it off from all others, and kill it before it can send what was written there."""
        network = self._network
        others = [other.name for other in self.hosts.values() if other is not host]
        for other in others:
            for weather in network.both(host.name, other):
                weather.cut = True
            network.tear(host.name, other)
        await trio.sleep(seconds)
        await host.kill()
        for other in others:
            for weather in network.both(host.name, other):
                weather.cut = False

    async def _ask(self, host: ChaosHost, do: str, **more: Any) -> Any:
        try:
            with trio.fail_after(100):
                async with host.operator() as asked:
                    return await asked.ask(do, **more)
        except trio.TooSlowError as error:
            raise LateError(f"{host.name} did not answer when asked to {do}") from error
        except CrdtcastError as error:
            raise MisbehavedError(f"{host.name} failed when asked to {do}: {error}") from error

    # The end

    async def _heal(self) -> None:
        self._network.calm()
        self._say("all faults have ended")
        for host in self.hosts.values():
            if host.present and not host.alive:
                self._restart(host)
        for host in self.hosts.values():
            if host.present:
                host.signal(signal.SIGCONT)
                await host.wait_member(SETTLE_SECONDS)

    async def _settle(self) -> None:
        """Wait until no message is unstable or pending at any node."""
        healed = trio.current_time()
        with trio.move_on_after(SETTLE_SECONDS):
            while (left := await self._left()) != 0:
                self.outcome.metadata_left = left
                await trio.sleep(0.1)
            self.outcome.metadata_left = 0
        self.outcome.settled = trio.current_time() - healed

    def _check_logs(self) -> None:
        """Check the event logs of the nodes against the definitions of causal delivery and stability."""
        for host in self.hosts.values():
            host.end()
        self._tell("compared all values; checking the event logs")
        checked = check_logs(host.events for host in self.hosts.values() if not host.lies)
        self.outcome.events = checked.counts["events"]
        self.outcome.reissued = checked.counts["reissues"]
        self.outcome.wrong += [
            f"crdtcast check: {violation}" for violation in checked.violations[:10]
        ]

    async def _left(self) -> int:
        """Messages that are unstable or pending, over all nodes; -1 if a node does not answer."""
        left = 0
        for host in self.hosts.values():
            if host.present:
                with suppress(MisbehavedError):
                    status = await self._ask(host, "status")
                    left += status["pending"] + status["unstable"]
                    continue
                return -1
        return left

    async def _compare(self) -> None:
        present = [host for host in self.hosts.values() if host.present]
        verified = await self._ask(present[0], "verify", seconds=60)
        outcome = self.outcome
        if not verified["equal"]:
            outcome.wrong.append(f"crdtcast verify: {verified}")
        if sorted(verified["members"]) != sorted(host.name for host in present):
            outcome.wrong.append(f"members are {verified['members']}")
        replicas: dict[str, dict[str, Any]] = {}
        for host in present:
            async with host.operator() as asked:
                names = [line["name"] for line in await asked.ask("objects")]
                replicas[host.name] = {
                    name: (await asked.ask("get", name=name))["value"] for name in names
                }
        yielded = [line for host in self.hosts.values() for line in host.yielded()]
        compare(self.clients.values(), replicas, outcome.found, yielded)


def _over() -> trio.Event:
    """An event that is already set: no episode comes before."""
    event = trio.Event()
    event.set()
    return event


def _lines(errors: BaseExceptionGroup[MisbehavedError]) -> list[str]:
    """The message of each error, however deep it is nested."""
    lines, left = list[str](), [errors]
    while left:
        for error in left.pop().exceptions:
            if isinstance(error, BaseExceptionGroup):
                left.append(error)
            else:
                lines.append(str(error))
    return lines
