"""The shared secret: each side proves that it knows it, without revealing it. Pure. While a secret is replaced there
are two: a node proves its first one, and accepts a proof of either.

A proof is HMAC-SHA256 (RFC 2104) under the secret, over the role and all identity fields of both hellos. Both nonces
are drawn for this connection, so a replayed proof is worthless; the role makes one that is sent back to its maker
worthless. It authenticates and does not encrypt: anything on the way can read and change what follows on the link.
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
"""Bytes. A shorter secret can be guessed after seeing one handshake."""
MAX_SECRETS = 2
SECRET_VARIABLE = "CRDTCAST_SECRET"
"""The environment variable that `read_secrets` reads."""


class Role(enum.StrEnum):
    """The two ends of a connection."""

    DIALLER = "dialler"
    ACCEPTOR = "acceptor"


def proof(secret: bytes, role: Role, dialler: Hello, acceptor: Hello) -> bytes:
    """The proof of the end in that role (32 bytes), as the other end expects it."""
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
    """The fields that nothing on the way may change."""
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
    """The group's secrets for `NodeOptions.secrets`, from `file`, or else from CRDTCAST_SECRET in the environment;
    empty if neither is given. One per line, at most two; surrounding white space does not count.

    No option takes the secret itself, because every user of a machine can read command lines. Create one with
    `openssl rand -hex 32`. Raises ConfigurationError if the file cannot be read, if other users can read it, or if a
    secret is short enough to be guessed.
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
    """Raises ConfigurationError if a secret can be guessed, or if there are more than a replacement needs."""
    for secret in secrets:
        if not isinstance(secret, bytes):
            raise ConfigurationError(f"{where} has a {type(secret).__name__}: give bytes")
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
