"""What was written by a newer program is told from what is damaged: moving it away would lose it."""

from crdtcast.exceptions import ConfigurationError


def check_format(where: str, found: object, reads: int) -> None:
    """Raise ConfigurationError if the number of the format there is above the one that this program reads."""
    if type(found) is int and found > reads:
        raise ConfigurationError(
            f"{where} has format {found}, and this program reads format {reads}: a newer program wrote it, start "
            "that one"
        )
