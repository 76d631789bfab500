"""A log that strangers cannot fill."""

import errno
import logging
import socket

import pytest

from crdtcast.transport.log_throttle import Throttle, cause_of


def test_one_line_per_key_and_period_and_a_count_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    throttle = Throttle(logging.getLogger("test"), period=10.0)
    for second in range(25):
        throttle.log(float(second), "key", logging.WARNING, "trouble")
    assert caplog.messages == [
        "trouble",
        "trouble (9 similar lines in the last 10 s)",
        "trouble (9 similar lines in the last 10 s)",
    ]
    throttle.forget("key")
    throttle.log(25.0, "key", logging.WARNING, "trouble")
    assert caplog.messages[-1] == "trouble"


def test_number_of_lines_is_bounded_for_endless_new_keys(caplog: pytest.LogCaptureFixture) -> None:
    throttle = Throttle(logging.getLogger("test"), period=10.0, keys=20)
    for number in range(1000):
        throttle.log(number / 100, number, logging.WARNING, f"my name is {number}")
    assert len(caplog.messages) == 20
    throttle.log(30.0, "later", logging.WARNING, "later")
    assert caplog.messages[-1] == "later"


def test_cause_of_a_wrapped_connection_error_is_shown() -> None:
    def dialled(*causes: OSError) -> OSError:
        wrapped = OSError("all attempts failed")
        wrapped.__cause__ = causes[0] if len(causes) == 1 else ExceptionGroup("all", causes)
        return wrapped

    refused, away = OSError(errno.ECONNREFUSED, "x"), OSError(errno.EHOSTUNREACH, "x")
    assert cause_of(dialled(refused)) == "Connection refused"
    assert cause_of(dialled(refused, away, refused)) == "Connection refused, No route to host"
    assert cause_of(OSError("said already")) == "said already"
    assert cause_of(EOFError()) == "EOFError"
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert cause_of(unknown) == "cannot resolve the host: Name or service not known"
