"""One Spark session for an audit: a local, quiet one, or the one that spark-submit has prepared."""

import enum
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from crdtcast.exceptions import UnusableInputError
from crdtcast.integrations.spark.java import find_java, start_gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""

# Settings that the audit needs in any session.
_EVERYWHERE = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A task writes so many partitions at once before it sorts its rows by partition.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.session.timeZone": "UTC",
    # We report errors; PySpark would print each with a stack of the virtual machine.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


class Size(enum.Enum):
    """How much data there is. Below some ten megabytes nearly all time goes into starting, planning and compiling. So a
    SMALL session compiles quickly instead of well, and plans once. A LARGE one plans again at each stage, from sizes
    that it has seen."""

    SMALL = "small"
    LARGE = "large"


_SETTINGS = {
    Size.SMALL: {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"},
    Size.LARGE: {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "32"},
}
_FLAGS = {
    Size.SMALL: [
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        # Spark's own classes, installed with it, are not verified: a tenth of a small audit's time.
        *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
    ],
    Size.LARGE: ["-XX:+UseParallelGC"],
}


@contextmanager
def open_session(
    size: Size = Size.SMALL, *, cores: int | None = None, memory: str = "2g"
) -> Iterator["SparkSession"]:
    """A session for the duration of the `with` block.

    Under spark-submit it is the one that spark-submit configures, and stays as it is. Otherwise a local one is started,
    and ended with its process and temporary directory.

    :param cores: threads to use; by default all of the machine.
    :param memory: heap of the virtual machine.
    :raises ConfigurationError: if there is no usable Java, or Spark does not start.
    :raises UnusableInputError: if Spark fails in the block, for example at a directory that it cannot write to.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        with _failures_told():
            yield _build(_EVERYWHERE)
    else:
        with _local_session(size, cores, memory) as session, _failures_told():
            yield session


@contextmanager
def _failures_told() -> Iterator[None]:
    """Turn Spark's errors into ours. Their text comes from the virtual machine, so it must still run."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by:")]
        words = causes[-1] if causes else " ".join(lines[:2])
        raise UnusableInputError(f"Spark failed: {words}") from error


@contextmanager
def _local_session(size: Size, cores: int | None, memory: str) -> Iterator["SparkSession"]:
    cores = cores or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0, 1])
    directory = Path(tempfile.mkdtemp(prefix="crdtcast-spark-"))
    try:
        quiet = directory / "log4j2.properties"
        quiet.write_text(_QUIET)
        java = find_java()
        gateway = start_gateway(
            java,
            {
                "spark.master": f"local[{cores}]",
                "spark.app.name": "crdtcast audit",
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.local.dir": str(directory / "local"),
                "spark.sql.warehouse.dir": str(directory / "warehouse"),
                "spark.sql.catalogImplementation": "in-memory",
                "spark.default.parallelism": str(cores),
                **_EVERYWHERE,
                **_SETTINGS[size],
            },
            directory=directory,
            flags=[
                f"-Xmx{memory}",
                *_FLAGS[size],
                f"-XX:ActiveProcessorCount={cores}",
                f"-Djava.io.tmpdir={directory}",
                f"-Dlog4j2.configurationFile={quiet.as_uri()}",
            ],
        )
        try:
            with _environment(
                PYSPARK_GATEWAY_PORT=str(gateway.port),
                PYSPARK_GATEWAY_SECRET=gateway.secret,
                SPARK_LOCAL_IP="127.0.0.1",
            ):
                session = _build({})
            try:
                yield session
            finally:
                _end(session)
        finally:
            gateway.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _build(settings: dict[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _end(session: "SparkSession") -> None:
    """Stop the session and forget its virtual machine, so that a later one can start."""
    from pyspark import SparkContext

    with suppress(Exception):  # the virtual machine may be gone already
        session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def _environment(**settings: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
