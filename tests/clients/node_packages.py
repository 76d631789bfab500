"""The clients of Node.js, installed by npm once into the directory of the development environment."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("ioredis@5.9.2", "redis@6.3.1")


class NotAvailableError(Exception):
    """There is no Node.js here, or the packages cannot be had from the registry."""


def installed(packages: Sequence[str] = PACKAGES, purpose: str = "clients") -> Path:
    """The directory of their modules, one for each purpose. Raises NotAvailableError."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NotAvailableError(f"{program} is not installed")
    cache = Path(os.environ.get("CRDTCAST_DEV_DIR") or ROOT / ".dev") / f"node-{purpose}"
    ready, wanted = cache / "ready", "\n".join(packages)
    if not (ready.exists() and ready.read_text() == wanted):
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        words = ["npm", "install", "--prefix", str(cache), "--ignore-scripts", "--no-audit"]
        done = subprocess.run(
            [*words, "--no-fund", *packages],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise NotAvailableError(f"npm install failed: {done.stderr[-1000:]}")
        ready.write_text(wanted)
    return cache / "node_modules"
