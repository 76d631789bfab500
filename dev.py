#!/usr/bin/env python3
"""Set a checkout up and run it: `python3 dev.py demo`, `python3 dev.py test`.

Standard library only. The first run makes a virtual environment in `.dev/venv` and installs the
checkout into it with everything; later runs see by a stamp that nothing has changed, and start at
once. This file stays readable to old Pythons, so that they get a clear message.
"""

import os
import sys

MINIMUM = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11")
ROOT = os.path.dirname(os.path.abspath(__file__))
EXTRAS = "all,test,lint"
USAGE = """usage: python3 dev.py COMMAND [ARGUMENTS...]

  demo   three servers, three gateways, a partition, an audit (dev.py demo --help)
  test   the test suite; arguments go to pytest (dev.py test tests/engine -k repair)
  lint   ruff and mypy, as the continuous integration runs them
  run    any program of the environment (dev.py run crdtcast redis --help)
  setup  only make the environment

The environment lives in .dev/venv, or where CRDTCAST_DEV_DIR says."""


def need_python():
    """Go on under a newer Python if this one is too old and one is at hand."""
    if os.name != "posix":
        sys.exit("dev.py: the gateway, the demo and the tests need Linux or macOS")
    if sys.version_info >= MINIMUM:
        return
    import shutil
    import subprocess

    for name in NEWER:
        found = shutil.which(name)
        # A version manager's stand-in is on the PATH even if the version is not to be had.
        if found and subprocess.call([found, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            os.execv(found, [found, os.path.abspath(__file__), *sys.argv[1:]])
    sys.exit(
        f"dev.py: crdtcast needs Python {MINIMUM[0]}.{MINIMUM[1]} or newer; "
        f"this is {sys.version.split()[0]} ({sys.executable}).\n"
        "Install a newer one and run it instead: python3.12 dev.py ..."
    )


need_python()

import fcntl  # noqa: E402
import hashlib  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

DEV = Path(os.environ.get("CRDTCAST_DEV_DIR") or Path(ROOT, ".dev")).absolute()
VENV = DEV / "venv"
PYTHON = VENV / "bin" / "python"
STAMP = DEV / "stamp"
LOG = DEV / "install.log"


def wanted() -> str:
    """What the environment depends on, as one hash: the dependencies, this file, Python, places."""
    parts = [Path(ROOT, "pyproject.toml").read_bytes(), Path(__file__).read_bytes()]
    parts += [text.encode() for text in (sys.version, sys.base_prefix, ROOT, str(VENV))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def is_ready(stamp: str) -> bool:
    """Whether the environment is there, and was made for what `stamp` stands for."""
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text() == stamp


def prepare() -> None:
    """Make the environment if it is missing or old. Two that start at once do it once."""
    stamp = wanted()
    if is_ready(stamp):
        return
    DEV.mkdir(parents=True, exist_ok=True)
    with open(DEV / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_ready(stamp):
            return
        STAMP.unlink(missing_ok=True)
        began = time.monotonic()
        say(f"setting up {VENV} (once; a few minutes, most of it for Spark); details in {LOG}")
        shutil.rmtree(VENV, ignore_errors=True)
        with open(LOG, "w") as log:
            install(log)
        STAMP.write_text(stamp)
        say(f"ready after {time.monotonic() - began:.0f} s")


def install(log) -> None:
    """Create the virtual environment and install the checkout, editable, with all extras."""
    target = f"{ROOT}[{EXTRAS}]"
    if has_module("ensurepip"):
        step([sys.executable, "-m", "venv", str(VENV)], log)
        pip = [str(PYTHON), "-m", "pip"]
    elif has_module("pip"):  # Debian splits ensurepip off: pip can install into another one
        step([sys.executable, "-m", "venv", "--without-pip", str(VENV)], log)
        pip = [sys.executable, "-m", "pip", "--python", str(PYTHON)]
    elif shutil.which("uv"):
        step(["uv", "venv", "--python", sys.executable, str(VENV)], log)
        step(["uv", "pip", "install", "--python", str(PYTHON), "-e", target], log)
        return
    else:
        sys.exit(
            "dev.py: this Python can make no virtual environment with pip in it "
            "(Debian and Ubuntu: apt install python3-venv)"
        )
    # Modules are compiled when they are first imported, to a place of ours (see `environment`): pip's would lie idle.
    quiet = ["--disable-pip-version-check", "--no-input", "--no-compile"]
    step([*pip, "install", *quiet, "-e", target], log)


def has_module(name: str) -> bool:
    """Whether this Python has the module `name`."""
    import importlib.util

    return importlib.util.find_spec(name) is not None


def step(words: list, log) -> None:
    """Run one step of the installation; what it prints goes to the log, shown if it fails."""
    log.write(f"$ {' '.join(words)}\n")
    log.flush()
    # PySpark comes as source: a wheel of 400 MB is made of it for this installation alone. Its jars are compressed.
    settings = DEV / "wheels.cfg"
    settings.write_text("[bdist_wheel]\ncompression = stored\n")
    variables = {**os.environ, "DIST_EXTRA_CONFIG": str(settings)}
    code = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables
    ).returncode
    if code:
        tail = Path(log.name).read_text(errors="replace").splitlines()[-25:]
        sys.stderr.write("\n".join(tail) + "\n")
        sys.exit(f"dev.py: the installation failed (see above, all of it in {LOG})")


def say(text: str) -> None:
    """A word to the person in front, apart from the program's output."""
    sys.stderr.write(f"dev.py: {text}\n")
    sys.stderr.flush()


def environment() -> dict:
    """The environment variables of a program that runs in the virtual environment."""
    result = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    result["VIRTUAL_ENV"] = str(VENV)
    # Compiled modules are kept, wherever the checkout lies: without them every start of a process takes twice as long.
    result.pop("PYTHONDONTWRITEBYTECODE", None)
    result["PYTHONPYCACHEPREFIX"] = str(DEV / "pycache")
    result["PATH"] = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", os.defpath)])
    return result


def become(words: list) -> None:
    """Turn into the program `words`, looked up in the environment first. Does not return."""
    variables = environment()
    program = shutil.which(words[0], path=variables["PATH"])
    if program is None:
        sys.exit(f"dev.py: there is no program {words[0]!r}")
    os.execve(program, [program, *words[1:]], variables)


def lint() -> int:
    """Every check, even if an earlier one failed; 1 if any did."""
    checks = (["ruff", "check"], ["ruff", "format", "--check"], ["mypy", "--strict"])
    codes = []
    for check in checks:
        words = [str(PYTHON), "-m", *check, *(["."] if check[0] == "ruff" else [])]
        codes.append(subprocess.run(words, cwd=ROOT, env=environment()).returncode)
    return int(any(codes))


def main(arguments: list) -> int:
    """Prepare the environment, then become what was asked for."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if command not in ("demo", "test", "lint", "run", "setup"):
        asked = command in ("help", "-h", "--help")
        (sys.stdout if asked else sys.stderr).write(USAGE + "\n")
        return 0 if asked else 2
    if command == "run" and not rest:
        sys.exit("dev.py: run needs a program: dev.py run crdtcast --help")
    prepare()
    if command == "demo":
        become([str(PYTHON), "-m", "crdtcast", "demo", *rest])
    elif command == "test":
        os.chdir(ROOT)
        become([str(PYTHON), "-m", "pytest", *rest])
    elif command == "run":
        become(rest)
    return lint() if command == "lint" else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
