"""The package's names are found lazily: nothing heavy is imported before it is used."""

import subprocess
import sys

import pytest

import crdtcast


def test_every_public_name_has_one_home() -> None:
    assert set(crdtcast.__all__) == {*crdtcast._HOME_OF, "__version__"}
    assert set(crdtcast.__all__) <= set(dir(crdtcast))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(crdtcast, "no_such_name")


@pytest.mark.process
def test_importing_the_pure_parts_imports_no_runtime() -> None:
    code = (
        "import sys, crdtcast, crdtcast.wire.frames, crdtcast.wire.handshake, crdtcast.backoff, "
        "crdtcast.causality.hlc, crdtcast.transport.options, crdtcast.engine; "
        "bad = {'trio', 'asyncio', 'socket'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
