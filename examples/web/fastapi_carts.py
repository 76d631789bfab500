"""Shopping carts in several regions, with FastAPI: each process is a replica, and answers without the others.

    NAME=eu LISTEN=127.0.0.1:7001 FOUND=yes uvicorn --app-dir examples/web fastapi_carts:app --port 8001
    NAME=us JOIN=127.0.0.1:7001 uvicorn --app-dir examples/web fastapi_carts:app --port 8002

A client that changes the region reads its own writes: it sends the `session` header that it was given last.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException, Response

from crdtcast import Token, aio
from crdtcast.datatypes import AWSet

PATIENCE = 5.0
"""Seconds that a reader waits for its own writes."""


def place() -> dict[str, object]:
    """Where this replica listens, and whom it joins."""
    told: dict[str, object] = {"listen": os.environ.get("LISTEN", "127.0.0.1:0")}
    if "JOURNAL" in os.environ:
        told["journal"] = os.environ["JOURNAL"]
    if "JOIN" in os.environ:
        told["join"] = os.environ["JOIN"]
    return told | {"found": "FOUND" in os.environ}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aio.open_replica(os.environ["NAME"], **place()) as app.state.replica:  # type: ignore[arg-type]
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/carts/{cart}/{item}")
async def add(cart: str, item: str, response: Response) -> list[str]:
    replica: aio.Replica = app.state.replica
    handle = replica.object(f"cart:{cart}", AWSet)
    await handle.add(item)
    response.headers["session"] = str(await replica.token())
    return sorted(map(str, handle.value))


@app.get("/carts/{cart}")
async def items(cart: str, session: Annotated[str | None, Header()] = None) -> list[str]:
    replica: aio.Replica = app.state.replica
    if session is not None:
        try:
            async with asyncio.timeout(PATIENCE):
                await replica.at_least(Token.parse(session))
        except TimeoutError:
            raise HTTPException(503, "your last writes have not come here yet") from None
    return sorted(map(str, replica.object(f"cart:{cart}", AWSet).value))
