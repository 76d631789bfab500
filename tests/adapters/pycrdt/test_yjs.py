"""The documents are those of Yjs itself: JavaScript reads what replicas hold, and replicas take what it writes."""

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.pycrdt.update import parsed_vector
from crdtcast.testing.model_group import Call, Group
from tests.adapters.pycrdt.editing import EditedDoc
from tests.clients.node_packages import NotAvailableError, installed

YJS = ("yjs@13.6.27",)


def read_by_yjs(*updates: bytes) -> Any:
    try:
        modules = installed(YJS, "yjs")
    except NotAvailableError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("yjs.js"))],
        input="\n".join(update.hex() for update in updates),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "NODE_PATH": str(modules)},
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("seed", range(6))
def test_yjs_reads_and_edits_what_replicas_hold(seed: int) -> None:
    rng = random.Random(seed)
    group = Group(EditedDoc, 5)
    updates: list[bytes] = []
    for _ in range(40):
        member = rng.choice(group.members)
        sent = group.issue(member, [Call("edit", rng.randrange(10_000))])
        updates += [operation[1] for operation in sent.operations()]
        for other in group.members:
            if rng.random() < 0.3 and (ready := group.deliverable(other)):
                group.deliver(other, rng.choice(ready))
    group.deliver_all()
    one = group.members[0].crdt
    read = read_by_yjs(*updates)
    assert read_by_yjs(one.update_since())["content"] == read["content"]
    value = one.value
    mine = {root: value.get(root, type(empty)()) for root, empty in read["content"].items()}
    # JSON has no bytes: Yjs shows them as an object of numbers.
    assert json.loads(json.dumps(mine, default=lambda raw: dict(enumerate(raw)))) == read["content"]
    for member in group.members:  # each brings it, as a client does that moves from one to another
        group.issue(member, [Call("apply", bytes.fromhex(read["edit"]))])
    group.deliver_all()
    assert len({member.crdt.digest() for member in group.members}) == 1
    assert parsed_vector(one.state_vector()) == parsed_vector(bytes.fromhex(read["state"]))
    assert "from Yjs 😀" in one.text("text")
