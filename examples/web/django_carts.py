"""Shopping carts with Django under gunicorn: each worker process is a replica, its threads share it.

    ADDRESSES=127.0.0.1:7001,127.0.0.1:7002 JOURNALS=data gunicorn --chdir examples/web \\
        --workers 2 --threads 4 django_carts:application

A worker takes the first place that no other one has, with its address and its journal: so a worker that is replaced
goes on as the same member of the group.
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

from crdtcast import sync
from crdtcast.datatypes import AWSet

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
    handle = replica.object(f"cart:{name}", AWSet)
    if request.method == "POST":
        handle.add(request.GET["item"])
        replica.wait_durable(timeout=5)
    return JsonResponse({"worker": NAME, "items": sorted(map(str, handle.value))})


urlpatterns = [path("carts/<str:name>", cart)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only an example")
application = get_wsgi_application()
