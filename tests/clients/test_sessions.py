"""Sessions of web frameworks as they are: log in at one region, be known at the other, until the session ends."""

from collections.abc import Iterator
from typing import Protocol

import django
import django.test
import flask
import pytest
import redis
from django.conf import settings
from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from django.urls import path
from flask_session import Session

from tests.clients.applications import recorded
from tests.clients.regions import HERE, THERE, TwoRegions

pytestmark = pytest.mark.process

AGE = 100
"""Seconds that a session lives without being used."""
NOBODY = "nobody"
ROWS = {
    "django-redis": "django-redis",
    "Django's own cache": "django",
    "Flask-Session": "flask-session",
}
"""Rows of the page of applications, and the kind of site."""
BACKENDS = {
    "django-redis": "django_redis.cache.RedisCache",
    "django": "django.core.cache.backends.redis.RedisCache",
}


class Site(Protocol):
    """A web site that runs in both regions. A cookie is what a browser keeps."""

    def log_in(self, region: str, user: str) -> str:
        """The cookie."""

    def who(self, region: str, cookie: str) -> str:
        """Who is logged in, which renews the session; `NOBODY` if nobody is."""

    def log_out(self, region: str, cookie: str) -> None: ...


class DjangoSite:
    """Views that use the sessions of Django, which a cache holds. kind: of that cache."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def log_in(self, region: str, user: str) -> str:
        return self._client(region, f"/log-in/{user}")[1]

    def who(self, region: str, cookie: str) -> str:
        return self._client(region, "/who", cookie)[0]

    def log_out(self, region: str, cookie: str) -> None:
        self._client(region, "/log-out", cookie)

    def _client(self, region: str, url: str, cookie: str = "") -> tuple[str, str]:
        client = django.test.Client()
        if cookie:
            client.cookies["sessionid"] = cookie
        with django.test.override_settings(SESSION_CACHE_ALIAS=f"{self._kind}-{region}"):
            response = client.get(url)
        assert response.status_code == 200
        kept = response.cookies.get("sessionid")
        return response.content.decode(), kept.value if kept else cookie


def _django_log_in(request: HttpRequest, user: str) -> HttpResponse:
    request.session.cycle_key()  # as django.contrib.auth does
    request.session["user"] = user
    return HttpResponse()


def _django_who(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.session.get("user", NOBODY))


def _django_log_out(request: HttpRequest) -> HttpResponse:
    request.session.flush()
    return HttpResponse()


URLS = (
    path("log-in/<user>", _django_log_in),
    path("who", _django_who),
    path("log-out", _django_log_out),
)


class FlaskSite:
    """An application in each region, with Flask-Session."""

    def __init__(self, regions: TwoRegions) -> None:
        self._redis = {
            HERE: redis.Redis(port=regions.here),
            THERE: redis.Redis(port=regions.there),
        }
        self._apps = {region: _flask_app(client) for region, client in self._redis.items()}

    def log_in(self, region: str, user: str) -> str:
        return self._request(region, f"/log-in/{user}")[1]

    def who(self, region: str, cookie: str) -> str:
        return self._request(region, "/who", cookie)[0]

    def log_out(self, region: str, cookie: str) -> None:
        self._request(region, "/log-out", cookie)

    def close(self) -> None:
        for client in self._redis.values():
            client.close()

    def _request(self, region: str, url: str, cookie: str = "") -> tuple[str, str]:
        client = self._apps[region].test_client()
        if cookie:
            client.set_cookie("session", cookie)
        response = client.get(url)
        assert response.status_code == 200
        kept = client.get_cookie("session")
        return response.text, kept.value if kept else cookie


def _flask_app(client: "redis.Redis[bytes]") -> flask.Flask:
    app = flask.Flask("site")
    app.config |= {
        "SESSION_TYPE": "redis",
        "SESSION_REDIS": client,
        "PERMANENT_SESSION_LIFETIME": AGE,
    }
    Session(app)

    @app.get("/log-in/<user>")
    def log_in(user: str) -> str:
        flask.session["user"] = user
        return ""

    @app.get("/who")
    def who() -> str:
        return str(flask.session.get("user", NOBODY))

    @app.get("/log-out")
    def log_out() -> str:
        flask.session.clear()
        return ""

    return app


@pytest.fixture(scope="module", autouse=True)
def _django(regions: TwoRegions) -> None:
    ports = {HERE: regions.here, THERE: regions.there}
    settings.configure(
        ALLOWED_HOSTS=["testserver"],
        CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
        | {
            f"{kind}-{region}": {"BACKEND": backend, "LOCATION": f"redis://127.0.0.1:{port}/2"}
            for kind, backend in BACKENDS.items()
            for region, port in ports.items()
        },
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
        ROOT_URLCONF=URLS,
        SECRET_KEY="of a test",
        SESSION_COOKIE_AGE=AGE,
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
        SESSION_SAVE_EVERY_REQUEST=True,
    )
    django.setup()


@pytest.fixture(params=[*BACKENDS, "flask-session"])
def site(request: pytest.FixtureRequest, regions: TwoRegions) -> Iterator[Site]:
    if request.param in BACKENDS:
        yield DjangoSite(request.param)
    else:
        flask_site = FlaskSite(regions)
        yield flask_site
        flask_site.close()


def test_login_in_one_region_is_known_in_the_other(regions: TwoRegions, site: Site) -> None:
    cookie = site.log_in(HERE, "ada")
    regions.settle()
    assert site.who(THERE, cookie) == "ada"
    regions.settle()
    regions.pass_seconds(AGE + 1)
    assert [site.who(region, cookie) for region in (HERE, THERE)] == [NOBODY, NOBODY]


def test_logout_in_one_region_ends_the_session_in_the_other(
    regions: TwoRegions, site: Site
) -> None:
    cookie = site.log_in(HERE, "ada")
    regions.settle()
    site.log_out(THERE, cookie)
    assert site.who(THERE, cookie) == NOBODY
    regions.settle()
    assert site.who(HERE, cookie) == NOBODY


def test_active_user_stays_logged_in_during_a_partition(regions: TwoRegions, site: Site) -> None:
    cookie = site.log_in(HERE, "ada")
    regions.settle()
    regions.cut()
    regions.pass_seconds(0.6 * AGE)
    assert site.who(THERE, cookie) == "ada", "which renews it"
    regions.pass_seconds(0.6 * AGE)
    assert site.who(THERE, cookie) == "ada"
    regions.heal()
    assert site.who(HERE, cookie) == "ada", (
        "here it was over, unused; the renewal had not been seen"
    )


def test_logout_yields_to_a_concurrent_request_elsewhere(regions: TwoRegions, site: Site) -> None:
    cookie = site.log_in(HERE, "ada")
    regions.settle()
    regions.cut()
    site.log_out(HERE, cookie)
    assert site.who(THERE, cookie) == "ada"
    regions.heal()
    assert site.who(HERE, cookie) == "ada", "the request has saved the session anew"


@pytest.mark.parametrize("name", ROWS)
def test_page_shows_what_each_framework_sends(regions: TwoRegions, name: str) -> None:
    kind = ROWS[name]
    site: Site = DjangoSite(kind) if kind in BACKENDS else FlaskSite(regions)
    with recorded(regions, name):
        cookie = site.log_in(HERE, "ada")
        regions.settle()
        assert site.who(THERE, cookie) == "ada"
        site.log_out(THERE, cookie)
        if kind in BACKENDS:
            use_cache(regions, kind)
    if isinstance(site, FlaskSite):
        site.close()


def use_cache(regions: TwoRegions, kind: str) -> None:
    """What applications do with a cache of Django: written in one region, read in the other."""
    here, there = caches[f"{kind}-{HERE}"], caches[f"{kind}-{THERE}"]
    here.set(f"{kind}:n", 1, 30)
    here.set_many({f"{kind}:a": "x", f"{kind}:b": ["y"]}, 30)
    assert here.add(f"{kind}:n", 2) is False
    regions.settle()
    assert there.incr(f"{kind}:n", 2) == 3
    assert there.touch(f"{kind}:n", 300) is True
    assert there.get_many([f"{kind}:a", f"{kind}:b"]) == {f"{kind}:a": "x", f"{kind}:b": ["y"]}
    assert there.delete(f"{kind}:a") is True
    regions.settle()
    regions.pass_seconds(60)
    assert here.get(f"{kind}:n") == 3 and here.get(f"{kind}:b") is None
    here.clear()
    regions.settle()
    assert there.get(f"{kind}:n") is None


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_cache_of_django(regions: TwoRegions, kind: str) -> None:
    use_cache(regions, kind)


def test_django_redis_extensions_work_or_are_refused(regions: TwoRegions) -> None:
    cache = caches[f"django-redis-{HERE}"]
    cache.set_many({"many:1": 1, "many:2": 2})
    assert cache.delete_pattern("many:*") == 2
    with pytest.raises(redis.ResponseError, match="EVALSHA"), cache.lock("held", timeout=5):
        pass
