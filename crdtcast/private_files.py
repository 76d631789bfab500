"""Files whose content only this user may know: a key, a secret, a password."""

import os
import stat

from crdtcast.exceptions import ConfigurationError


def check_private(path: str | os.PathLike[str], what: str) -> None:
    """Refuse a file that other users can read. It must belong to this user or to root; only a file of root may be
    readable by its group, because systems hand keys to services in that way.

    what: its content, for messages. Raises ConfigurationError if it is refused, OSError if it does not exist.
    """
    found = os.stat(path)
    name = os.fspath(path)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        raise ConfigurationError(f"{name} is not a file: name the file with {what}")
    if found.st_uid not in (os.geteuid(), 0):
        raise ConfigurationError(
            f"{name}, with {what}, belongs to another user, who can read and change it: chown it "
            "to root, or to the user that runs this program"
        )
    allowed = 0o740 if found.st_uid == 0 else 0o700
    if stat.S_IMODE(found.st_mode) & ~allowed & 0o077:
        raise ConfigurationError(
            f"other users can read or change {name}, with {what}: chmod 600 {name} (or 640, if it "
            "is root's and the group's members may know it)"
        )
