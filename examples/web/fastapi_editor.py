"""A shared text in the browser, with several nodes: each process is a replica, serves the page, and has the rooms.

    npm ci --prefix examples/web/editor && npm run build --prefix examples/web/editor
    NAME=eu JOURNAL=data/eu LISTEN=127.0.0.1:7001 FOUND=1 uvicorn --app-dir examples/web fastapi_editor:app --port 8001
    NAME=us JOURNAL=data/us JOIN=127.0.0.1:7001 uvicorn --app-dir examples/web fastapi_editor:app --port 8002

Open http://127.0.0.1:8001/?nodes=127.0.0.1:8001,127.0.0.1:8002 and, in another window, the same with port 8002. A node
that is started again by the same command goes on from its journal.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from crdtcast import aio
from crdtcast.adapters.pycrdt import Rooms, anyone

NAME = os.environ.get("NAME") or sys.exit(
    "set NAME: the commands are at the top of fastapi_editor.py"
)
PAGE = Path(__file__).parent / "editor" / "static"
if not (PAGE / "editor.js").exists():
    sys.exit("build the page: the two commands are at the top of fastapi_editor.py")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aio.open_replica(
        NAME,
        listen=os.environ.get("LISTEN", "127.0.0.1:0"),
        journal=os.environ.get("JOURNAL"),
        found="FOUND" in os.environ,
        join=os.environ.get("JOIN", "").split(),
        join_timeout=30,
    ) as replica:
        app.state.rooms = Rooms(replica, anyone)  # your own function, where not everybody may write
        yield


async def rooms(scope: Scope, receive: Receive, send: Send) -> None:
    await app.state.rooms.asgi(scope, receive, send)


app = FastAPI(lifespan=lifespan)
app.mount("/rooms", rooms)
app.mount("/", StaticFiles(directory=PAGE, html=True))
