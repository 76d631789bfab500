"""One Spark session for the whole run, and one audit: both take longer than most of the tests."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.logcheck.log_faults import Planted

if TYPE_CHECKING:
    from crdtcast.integrations.spark.result import Result


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    pytest.importorskip("pyspark")
    from crdtcast.integrations.spark.session import open_session

    with open_session(cores=2) as session:
        # To compile a plan takes longer than to interpret it for a thousand rows. (The demo's audit compiles.)
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        yield session


@dataclass(frozen=True)
class Audited:
    """The audit of many groups at once: its result, what was planted by group, and where the files are."""

    result: "Result"
    planted: dict[str, Planted]
    logs: Path
    out: Path


@pytest.fixture(scope="session")
def everything(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    from crdtcast.integrations.spark.audit import run
    from crdtcast.integrations.spark.report import page
    from tests.integrations.spark_logs import write_all

    directory = tmp_path_factory.mktemp("audit")
    logs, out = directory / "logs", directory / "out"
    planted = write_all(logs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "MOST_GROUPS", 2)  # a figure takes as long as the checks of a group
        return Audited(run(spark, str(logs), str(out)), planted, logs, out)
