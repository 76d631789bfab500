"""Which tests stay together in one worker: those of a file, which may share what is expensive; and all of Spark."""

from xdist.scheduler import LoadFileScheduling

LONGEST = (
    *("integrations/test_spark_audit.py", "integrations/test_spark_command.py"),
    *("integrations/test_spark_demo.py", "integrations/test_spark_not_judged.py"),
    *("adapters/redis/test_changed_past.py", "adapters/redis/test_members.py"),
    *("conformance/test_own.py", "adapters/redis/test_server_faults.py"),
    *("simulator/test_group_campaigns.py", "adapters/redis/test_format_level.py"),
    *("adapters/redis/test_recorded_crashes.py", "adapters/redis/test_repair_storms.py"),
    *("adapters/redis/test_large_copies.py", "adapters/redis/test_large_repairs.py"),
    *("adapters/redis/test_crashes.py", "adapters/redis/test_large_commands.py"),
    *("adapters/redis/test_dropped_keys.py", "adapters/redis/test_lost_second.py"),
    *("adapters/redis/test_emptied_server.py", "conformance/test_bank.py"),
    *("adapters/redis/test_transactions.py", "adapters/redis/test_recorded_commands.py"),
    *("adapters/redis/test_databases.py", "adapters/redis/test_deadlines.py"),
    *("adapters/redis/test_recorded_members.py", "adapters/redis/test_databases_regions.py"),
    *("integrations/test_pytest_plugin.py", "testing/test_kit.py", "test_experiments.py"),
    *("redispy/test_redispy.py", "demo/test_demo.py", "chaos/test_chaos.py"),
    *("adapters/redis/test_gateway.py", "adapters/redis/test_server_kinds.py"),
    *("adapters/redis/test_unstable.py", "operations/test_processes.py"),
    *("simulator/test_oracle.py", "adapters/redis/test_hidden_crashes.py"),
)
"""Files below `tests/` that begin first, since they take longest: so the workers end at the same time."""


def place_of(file: str) -> int:
    """A smaller number for a file that is to begin earlier; `file` is a path with slashes."""
    return next(
        (n for n, name in enumerate(LONGEST) if file.endswith(f"tests/{name}")), len(LONGEST)
    )


def workers(cores: int) -> int:
    """How many processes run the tests: two more than cores, since those with processes of their own often wait."""
    return cores + 2 if cores > 1 else 1


class ByFile(LoadFileScheduling):
    """The next file for the worker that has nothing to do."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if file.rpartition("/")[2].startswith("test_spark") else file
