"""Whether a run depends on how Python orders sets: what a program prints under one hash seed."""

import os
import subprocess
import sys


def printed(program: str, hash_seed: str) -> str:
    """The output of a Python program with that PYTHONHASHSEED, and the modules of this process."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return result.stdout
