"""Shopping carts with Django under gunicorn: each worker process is a replica, its threads share it.

    ADDRESSES=127.0.0.1:7001,127.0.0.1:7002 JOURNALS=data gunicorn --chdir examples/web \\
        --workers 2 --threads 4 django_carts:application

A worker takes the first place that no other one has, with its address and its journal: so a worker that is replaced
goes on as the same member of the group. A client comes to another worker with each request, and finds what it has
written and seen: it sends the `session` header that it was given last.
"""

import atexit
import fcntl
import os
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from crdtcast import Token, UnusableInputError, sync
from crdtcast.datatypes import AWSet

PATIENCE = 5.0
"""Seconds that a request waits for what its client has seen at another worker."""
ADDRESSES = os.environ["ADDRESSES"].split(",")
FOUNDERS = {f"web{place}": address for place, address in enumerate(ADDRESSES)}


def take_place() -> tuple[str, Path, IO[str]]:
    """A name, its journal, and a lock that is held as long as this process lives."""
    for name in FOUNDERS:
        journal = Path(os.environ["JOURNALS"], name)
        journal.mkdir(parents=True, exist_ok=True)
        lock = journal.with_suffix(".lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            return name, journal, lock
    raise SystemExit(f"more workers than addresses: {len(FOUNDERS)}")


NAME, JOURNAL, LOCK = take_place()
opened = sync.open_replica(NAME, founders=FOUNDERS, journal=JOURNAL)
replica = opened.__enter__()
atexit.register(opened.__exit__, None, None, None)


def cart(request: HttpRequest, name: str) -> JsonResponse:
    try:
        if session := request.META.get("HTTP_SESSION"):
            replica.at_least(Token.parse(session), timeout=PATIENCE)
    except UnusableInputError as error:
        return JsonResponse({"error": str(error)}, status=400)
    except TimeoutError:
        return JsonResponse({"error": "what you have seen has not come here yet"}, status=503)
    handle = replica.object(f"cart:{name}", AWSet)
    if request.method == "POST":
        handle.add(str(request.GET["item"]))
    elif request.method == "DELETE":
        handle.remove(str(request.GET["item"]))
    session = str(replica.token())  # waits until all it names is on disk
    items = sorted(map(str, handle.value))
    return JsonResponse({"worker": NAME, "items": items}, headers={"session": session})


urlpatterns = [path("carts/<str:name>", cart)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only an example")
application = get_wsgi_application()
