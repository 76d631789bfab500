"""Writes a text to a path on any Hadoop file system."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession


def local_path(location: str) -> Path | None:
    """The local file of a location, or None if it is on another file system."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    # One letter is a Windows drive, not a scheme.
    return Path(location) if len(parts.scheme) < 2 else None


def write_text(spark: SparkSession, location: str, text: str) -> None:
    """Create or replace the file at `location` with `text` in UTF-8."""
    local = local_path(location)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_text(text, encoding="utf-8")
        return
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(location)
    system = path.getFileSystem(context._jsc.hadoopConfiguration())
    stream = system.create(path, True)
    try:
        stream.write(bytearray(text.encode("utf-8")))
    finally:
        stream.close()
