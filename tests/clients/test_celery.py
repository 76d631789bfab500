"""Celery's results as they are: a worker stores one in its region, another region reads it."""

import gc
import uuid
from collections.abc import Iterator

import celery
import celery.result
import pytest
from celery.exceptions import TimeoutError as NoResultError

from tests.clients.applications import recorded
from tests.clients.regions import TwoRegions

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning"),
    # Celery leaves the connection of its subscriptions to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def apps(regions: TwoRegions) -> Iterator[tuple[celery.Celery, celery.Celery]]:
    """Celery in each region. The broker is in memory: brokers need lists."""
    made = []
    for port in (regions.here, regions.there):
        app = celery.Celery("app", broker="memory://", backend=f"redis://127.0.0.1:{port}/6")
        app.conf.result_expires = 1000
        made.append(app)
    yield made[0], made[1]
    gc.collect()  # results that are dropped later would connect again
    for app in made:
        app.backend.result_consumer.stop()
        app.backend.client.connection_pool.disconnect()
        app.close()


def test_celery_results(regions: TwoRegions, apps: tuple[celery.Celery, celery.Celery]) -> None:
    here, there = apps
    with recorded(regions, "Celery's results"):
        one, failed, later = (str(uuid.uuid4()) for _ in range(3))
        here.backend.store_result(one, {"sum": 7}, "SUCCESS")
        here.backend.mark_as_failure(failed, ValueError("no"))
        regions.settle()
        assert celery.result.AsyncResult(one, app=there).get(timeout=30) == {"sum": 7}
        with pytest.raises(ValueError, match="no"):
            celery.result.AsyncResult(failed, app=there).get(timeout=30)

        waits = celery.result.AsyncResult(later, app=there)
        assert waits.state == "PENDING"
        here.backend.store_result(later, 1, "SUCCESS")
        regions.settle()
        assert celery.result.AsyncResult(later, app=there).get(timeout=30) == 1

        group = celery.result.GroupResult(str(uuid.uuid4()), [waits], app=here)
        group.save(backend=here.backend)
        regions.settle()
        restored = celery.result.GroupResult.restore(group.id, backend=there.backend, app=there)
        assert restored is not None and [each.id for each in restored.results] == [later]
        celery.result.AsyncResult(one, app=there).forget()
        regions.settle()
        assert here.backend.get_state(one) == "PENDING"
        regions.pass_seconds(1001)
        assert there.backend.get_state(later) == "PENDING", "it has expired in both"
        assert here.backend.get_state(later) == "PENDING"


def test_waiting_in_another_region_is_not_woken(
    regions: TwoRegions, apps: tuple[celery.Celery, celery.Celery]
) -> None:
    """PUBLISH reaches this region only: `get` looks once, then waits for the message."""
    here, there = apps
    number = str(uuid.uuid4())
    with pytest.raises(NoResultError):
        celery.result.AsyncResult(number, app=there).get(timeout=0.2)
    here.backend.store_result(number, 1, "SUCCESS")
    regions.settle()
    assert celery.result.AsyncResult(number, app=there).state == "SUCCESS", "asking again finds it"
