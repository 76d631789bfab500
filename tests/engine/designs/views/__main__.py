"""`python -m tests.engine.designs.views [SCOPE ...]`: all states of small scopes, and how many there are.

Without a scope: all of those that take seconds. With an unknown one: their names.
"""

import sys
import time

from tests.engine.designs.views.exhaustive import Explored, explore
from tests.engine.designs.views.scopes import LARGE, SMALL, Scope

PROGRESS = 30
"""Seconds of CPU between two lines about a scope that is not done."""


def explored(scope: Scope) -> Explored:
    """Goes through a scope, and prints how far it is."""
    began = time.process_time()
    due = PROGRESS

    def told(states: int, left: int) -> None:
        nonlocal due
        seconds = time.process_time() - began
        if seconds >= due and left:
            due = seconds + PROGRESS
            print(f"{scope}: {states:,} states, {left:,} more known, {seconds:.0f} s", flush=True)

    found = explore(scope, told)
    end = "\n  ".join((found.failure, *found.trace)) if found.failure else "nothing is wrong"
    seconds = time.process_time() - began
    print(f"{scope}: {found.states:,} states, {seconds:.1f} s of CPU: {end}", flush=True)
    return found


def main(names: list[str]) -> int:
    """In how many scopes something is wrong."""
    scopes = {str(scope): scope for scope in (*SMALL, *LARGE)}
    if unknown := set(names) - scopes.keys():
        print(f"unknown scope {unknown.pop()!r}: choose from {', '.join(scopes)}", file=sys.stderr)
        return 2
    chosen = [scopes[name] for name in names] or SMALL
    return sum(bool(explored(scope).failure) for scope in chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
