"""The public names: all there, all documented, and nothing heavy is imported before it is used."""

import subprocess
import sys

import crdtcast


def test_every_public_name_exists_and_is_documented() -> None:
    for name in crdtcast.__all__:
        assert getattr(crdtcast, name).__doc__, f"{name} says nothing about itself"
    assert sorted(crdtcast.__all__, key=str.lower) == sorted(set(crdtcast.__all__), key=str.lower)
    assert set(crdtcast.__all__) == set(crdtcast._HOME_OF)
    assert set(crdtcast.__all__) <= set(dir(crdtcast))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(crdtcast, "no_such_name")


def test_importing_the_package_imports_no_runtime() -> None:
    code = (
        "import sys, crdtcast, crdtcast.wire, crdtcast.handshake, crdtcast.backoff, crdtcast.hlc, "
        "crdtcast.options, crdtcast.engine; "
        "bad = {'trio', 'asyncio', 'socket'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
