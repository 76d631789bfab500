"""Whose place a joiner takes, by what it says and who is alive. Pure."""

from collections.abc import Container, Sequence

from crdtcast.causality.member_id import base_of, name_of
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import HandshakeError


def whose_place(
    engine: GroupEngine, base: str, replaces: Sequence[str], linked: Container[str]
) -> list[str]:
    """The incarnations that a joiner replaces: its former lives, and those that the operator calls lost.

    base: of the joiner. replaces: what it says: ids, bases, or names of members. linked: names of those
    who are alive.

    Raises HandshakeError for the name of another one that is alive, or is no member.
    """
    ids = [each for each in replaces if "." in each]
    named = {m for m in engine.members if name_of(m) in replaces and base_of(m) != base}
    others = {each for each in replaces if each not in ids and each != name_of(base)}
    if alive := sorted(each for each in others if each in linked or each == name_of(engine.me)):
        raise HandshakeError(
            f"{', '.join(alive)} is alive, says {name_of(engine.me)}: stop it before another node takes "
            "its place"
        )
    # Whoever has asked before, under another id, may be in already, and the one replaced forgotten.
    is_in = any(base_of(m) in set(map(base_of, ids)) for m in engine.members)
    if not is_in and (unknown := sorted(others - set(map(name_of, named)))):
        known = ", ".join(sorted(map(name_of, engine.members)))
        raise HandshakeError(
            f"{', '.join(unknown)} is no member, so nobody can take its place: there are {known}"
        )
    return [*ids, *sorted(named)]
