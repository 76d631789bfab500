"""The public names: a change to this list is a change for users, and belongs into CHANGELOG.md."""

import importlib
import inspect

import pytest

import crdtcast

PUBLIC = """
    ConfigurationError CrdtcastError Delivered Dot EndedError Evicted Handle HandshakeError Host
    InvalidOperationError Joined JournalError Limits LocalProtocolError Member NotReadyError
    RemoteProtocolError Replica RolledBackError ServerError Snapshot Stable Standing StateMachine
    StoreFullError SupersededError Tag Token TypeClashError UnusableInputError WhenFull Whisper __version__
    open_host open_member open_replica run_until_signal
"""

PACKAGES = ("crdtcast", "crdtcast.datatypes", "crdtcast.lowlevel", "crdtcast.testing")


def test_the_export_list() -> None:
    assert sorted(crdtcast.__all__) == sorted(PUBLIC.split())


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists_and_is_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__doc__
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, type) or inspect.isfunction(value):
            assert value.__doc__, f"{package}.{name} has no docstring"


def test_errors_are_one_tree() -> None:
    named = [getattr(crdtcast, name) for name in crdtcast.__all__ if name.endswith("Error")]
    assert all(issubclass(error, crdtcast.CrdtcastError) for error in named)
