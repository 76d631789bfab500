"""One Spark session for the whole run: it takes longer to start than most of the tests."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    pytest.importorskip("pyspark")
    from crdtcast.integrations.spark.session import open_session

    with open_session(cores=2) as session:
        # To compile a plan takes longer than to interpret it for a thousand rows. (The demo's audit compiles.)
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        yield session
