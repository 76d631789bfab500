"""Which tests stay together in one worker: those of a file, which may share what is expensive; and all of Spark."""

from xdist.scheduler import LoadFileScheduling


class ByFile(LoadFileScheduling):
    """The next file for the worker that has nothing to do."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if file.rpartition("/")[2].startswith("test_spark") else file
