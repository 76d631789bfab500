"""The shared secret: each side proves that it knows it, without saying it. Pure. While a secret is replaced there are
two: a node proves that it knows its first one, and takes a proof under either.

A proof is HMAC-SHA256 (RFC 2104) under the secret, over who proves and all that both hellos say of
identity: the two nonces, drawn for this one connection, make a replayed proof worthless, the role
one that is sent back to its maker. It authenticates, and does not encrypt: what follows on the link
can be read, and changed, by whoever carries it.
"""

import enum
import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgpack

from crdtcast.exceptions import ConfigurationError
from crdtcast.private_files import check_private
from crdtcast.wire.frames import Hello

MIN_SECRET = 16
"""Bytes. A shorter secret can be guessed by who has seen one handshake."""
MAX_SECRETS = 2
SECRET_VARIABLE = "CRDTCAST_SECRET"
"""The environment's variable that `read_secret` looks at."""


class Role(enum.StrEnum):
    """Of the two ends of a connection."""

    DIALLER = "dialler"
    ACCEPTOR = "acceptor"


def proof(secret: bytes, role: Role, dialler: Hello, acceptor: Hello) -> bytes:
    """What the end in that role sends (32 bytes), and the other end expects of it."""
    said = ["crdtcast link", role.value, _identity(dialler), _identity(acceptor)]
    return hmac.digest(secret, msgpack.packb(said), hashlib.sha256)


def proves(
    mac: bytes, secrets: Iterable[bytes], role: Role, dialler: Hello, acceptor: Hello
) -> bool:
    """Whether `mac` is the proof of the end in that role, under one of these secrets."""
    return any(
        hmac.compare_digest(mac, proof(secret, role, dialler, acceptor)) for secret in secrets
    )


def _identity(hello: Hello) -> list[object]:
    """What nobody in between may change."""
    return [
        hello.version,
        hello.oldest,
        hello.group,
        hello.name,
        hello.incarnation,
        hello.process,
        hello.fence,
        hello.shared,
        hello.address,
        hello.nonce,
        hello.level,
        list(hello.reads),
        hello.databases,
    ]


def read_secrets(
    file: str | os.PathLike[str] | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[bytes, ...]:
    """The group's secret for `NodeOptions.secrets`: what is in `file`, or else in the environment's
    CRDTCAST_SECRET; empty if neither is given. One to a line, two at most; white space around it does not count.

    Command lines can be read by every user of a machine, so there is no option that takes the secret
    itself. Make one with `openssl rand -hex 32`. Raises ConfigurationError for a file that cannot be
    read, or that others can read, and for a secret that can be guessed because it is short.
    """
    if file is not None:
        where = os.fspath(file)
        try:
            check_private(file, "the group's secret")
            text = Path(file).read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the secret in {where}: {error.strerror}: correct the path, or the "
                "permissions of the file"
            ) from error
    elif SECRET_VARIABLE in environment:
        text, where = os.fsencode(environment[SECRET_VARIABLE]), SECRET_VARIABLE
    else:
        return ()
    secrets = tuple(line.strip() for line in text.strip().splitlines() if line.strip())
    check_secrets(secrets or (b"",), where)
    return secrets


def check_secrets(secrets: Sequence[bytes], where: str) -> None:
    """Raises ConfigurationError for one that can be guessed, and for more than are needed to replace one."""
    for secret in secrets:
        if len(secret) < MIN_SECRET:
            raise ConfigurationError(
                f"the secret in {where} is too short: it has {len(secret)} bytes, and "
                f"{MIN_SECRET} are needed: create one with `openssl rand -hex 32`"
            )
    if len(secrets) > MAX_SECRETS:
        raise ConfigurationError(
            f"{where} has {len(secrets)} secrets: give one, or two while all members change from "
            "one to the other"
        )
