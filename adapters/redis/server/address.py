"""Where a gateway's server is: host and port, a Unix socket, or the primary that Sentinel names at each connection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import trio

from crdtcast.adapters.redis.server.tls_sockets import TlsFiles
from crdtcast.exceptions import ConfigurationError, ServerError

_FORMS = (
    "redis://[user:password@]host[:port], rediss:// for TLS, unix://[user:password@]/path, or "
    "sentinel://[user:password@]host:port,…/name (sentinels:// for TLS)"
)
_PLAIN = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
_SENTINEL = {"sentinel": False, "sentinels": True}
_SENTINEL_PORT = 26379
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """One server. `str()` omits the password.

    path: of a Unix socket, instead of host and port.
    """

    host: str
    port: int
    username: str | None = None
    password: str | None = None
    path: str | None = None
    tls: TlsFiles | None = None

    async def locate(self) -> ServerAddress:
        """The server to connect to now."""
        return self

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SentinelService:
    """A primary that Sentinel watches.

    sentinels: Sentinels to ask; one that answers is enough.
    server: how to log in at the primary.
    """

    sentinels: tuple[tuple[str, int], ...]
    name: str
    server: ServerAddress
    username: str | None = None
    password: str | None = None

    async def locate(self) -> ServerAddress:
        """The current primary. Raises ServerError if no Sentinel knows one."""
        host, port = await trio.to_thread.run_sync(self._ask)
        return replace(self.server, host=host, port=port)

    def _ask(self) -> tuple[str, int]:
        # Only Sentinel needs this package: importing it costs 0.2 s and 20 MiB.
        import redis
        import redis.sentinel
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options: dict[str, Any] = {
            "username": self.username,
            "password": self.password,
            "socket_timeout": _PATIENCE_SECONDS,
            "socket_connect_timeout": _PATIENCE_SECONDS,
            # By default it retries ten times, for seven seconds, before it asks the next Sentinel.
            "retry": Retry(NoBackoff(), 0),
        }
        if (tls := self.server.tls) is not None:
            options |= {
                "ssl": True,
                "ssl_ca_certs": tls.ca,
                "ssl_certfile": tls.certificate,
                "ssl_keyfile": tls.key,
            }
        # The package has no types for these two.
        asked = redis.sentinel.Sentinel(self.sentinels, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        try:
            host, port = asked.discover_master(self.name)  # type: ignore[no-untyped-call]
            return str(host), int(port)
        except redis.RedisError as error:
            raise ServerError(f"no Sentinel of {self} names a primary: {error}") from error
        finally:
            for sentinel in asked.sentinels:
                sentinel.close()

    def __str__(self) -> str:
        return f"{','.join(f'{host}:{port}' for host, port in self.sentinels)}/{self.name}"


def parse_server(url: str, tls: TlsFiles | None = None) -> ServerAddress | SentinelService:
    """The server that `url` names; `tls` is for URLs with TLS. Raises ConfigurationError if `url` is invalid."""
    try:
        parts = urlsplit(url)
        if parts.scheme in _SENTINEL:
            return _sentinel(parts, (tls or TlsFiles()) if _SENTINEL[parts.scheme] else None)
        if parts.scheme == "unix" and parts.path:
            login = _login(parts)
            return ServerAddress("", 0, *login, path=unquote(parts.path))
        if parts.scheme in _PLAIN and parts.hostname:
            if parts.path not in ("", "/", "/0"):
                raise ConfigurationError(
                    f"server address {_shown(parts)} names a database: omit it, since the gateway "
                    "serves all databases"
                )
            secured = (tls or TlsFiles()) if _PLAIN[parts.scheme] else None
            return ServerAddress(parts.hostname, parts.port or 6379, *_login(parts), tls=secured)
    except ValueError as error:
        raise ConfigurationError(f"the server's address: {error}: write it as {_FORMS}") from error
    raise ConfigurationError(f"server address {_shown(parts)}: write it as {_FORMS}")


def _sentinel(parts: SplitResult, tls: TlsFiles | None) -> SentinelService:
    name = unquote(parts.path.strip("/"))
    places = tuple(_place(each) for each in parts.netloc.rpartition("@")[2].split(",") if each)
    asked = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    unknown = asked.keys() - {"username", "password"}
    if not name or not places or unknown:
        what = f"unknown option {sorted(unknown)[0]!r}" if unknown else "the name is missing"
        raise ConfigurationError(
            f"server address {_shown(parts)}: {what}: write it as "
            "sentinel://[user:password@]host:port,…/name[?username=…&password=…], the latter for Sentinel itself"
        )
    login = ServerAddress("", 0, *_login(parts), tls=tls)
    return SentinelService(places, name, login, asked.get("username"), asked.get("password"))


def _place(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"{text!r} is not host:port")
    return parts.hostname, parts.port or _SENTINEL_PORT


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    return unquote(user) or None, unquote(password) if colon else None


def _shown(parts: SplitResult) -> str:
    """The address without its password, as it was written."""
    slashes = "//" if parts.netloc else ""
    scheme = f"{parts.scheme}:" if parts.scheme else ""
    return repr(
        f"{scheme}{slashes}{parts.netloc.rpartition('@')[2]}{parts.path.rpartition('@')[2]}"
    )
