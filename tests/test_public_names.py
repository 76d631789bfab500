"""The public names: a change to this list is a change for users, and belongs into CHANGELOG.md."""

import importlib
import inspect

import pytest

import crdtcast

PUBLIC = """
    ConfigurationError CrdtcastError Delivered Dot Durability EndedError Engine EngineState EventLog
    Evicted GroupEngine GroupLinks GroupMember HLC Handle HandshakeError InvalidOperationError Joined
    JournalError LinkStatus LocalProtocolError Node NodeOptions NotReadyError Process
    RemoteProtocolError Replica RolledBackError ServerError Snapshot Stable StoreFullError StoreLimits
    SupersededError Tag Token TypeClashError UnusableInputError WhenFull open_group open_links
    open_replica rare_full_collections run_process run_until_signal
"""

PACKAGES = ("crdtcast", "crdtcast.datatypes", "crdtcast.engine", "crdtcast.testing")


def test_the_export_list() -> None:
    assert sorted(crdtcast.__all__) == sorted(PUBLIC.split())


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_is_there_and_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__doc__
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, type) or inspect.isfunction(value):
            assert value.__doc__, f"{package}.{name} has no docstring"


def test_errors_are_one_tree() -> None:
    named = [getattr(crdtcast, name) for name in crdtcast.__all__ if name.endswith("Error")]
    assert all(issubclass(error, crdtcast.CrdtcastError) for error in named)
