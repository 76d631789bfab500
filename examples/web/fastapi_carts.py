"""Shopping carts in several regions, with FastAPI: each process is a replica, and answers without the others.

    NAME=eu LISTEN=127.0.0.1:7001 FOUND=1 uvicorn --app-dir examples/web fastapi_carts:app --port 8001
    NAME=us JOIN=127.0.0.1:7001 uvicorn --app-dir examples/web fastapi_carts:app --port 8002

A client that changes the region finds what it has written and seen: it sends the `session` header that it was given
last.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Response

from crdtcast import Token, UnusableInputError, aio
from crdtcast.datatypes import AWSet

NAME = os.environ.get("NAME") or sys.exit(
    "set NAME: the commands are at the top of fastapi_carts.py"
)
PATIENCE = 5.0
"""Seconds that a request waits for what its client has seen elsewhere."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aio.open_replica(
        NAME,
        listen=os.environ.get("LISTEN", "127.0.0.1:0"),
        journal=os.environ.get("JOURNAL"),
        found="FOUND" in os.environ,
        join=os.environ.get("JOIN", "").split(),
        join_timeout=30,
    ) as app.state.replica:
        yield


app = FastAPI(lifespan=lifespan)


async def replica(session: Annotated[str | None, Header()] = None) -> aio.Replica:
    """The replica, once it has what this client has seen anywhere."""
    here: aio.Replica = app.state.replica
    if session is not None:
        try:
            async with asyncio.timeout(PATIENCE):
                await here.at_least(Token.parse(session))
        except UnusableInputError as error:
            raise HTTPException(400, str(error)) from None
        except TimeoutError:
            raise HTTPException(503, "what you have seen has not come here yet") from None
    return here


Here = Annotated[aio.Replica, Depends(replica)]


async def told(here: aio.Replica, cart: str, response: Response) -> list[str]:
    response.headers["session"] = str(await here.token())  # waits until all it names is on disk
    return sorted(map(str, here.object(f"cart:{cart}", AWSet).value))


@app.post("/carts/{cart}/{item}")
async def add(cart: str, item: str, here: Here, response: Response) -> list[str]:
    await here.object(f"cart:{cart}", AWSet).add(item)
    return await told(here, cart, response)


@app.delete("/carts/{cart}/{item}")
async def remove(cart: str, item: str, here: Here, response: Response) -> list[str]:
    await here.object(f"cart:{cart}", AWSet).remove(item)
    return await told(here, cart, response)


@app.get("/carts/{cart}")
async def items(cart: str, here: Here, response: Response) -> list[str]:
    return await told(here, cart, response)
