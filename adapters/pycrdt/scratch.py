"""A copy of a document in which each update is tried first.

pycrdt applies an update item by item, and cannot take back what it has done when it fails at one. So an update goes
into the copy first, and into the document itself only if that worked. The copy stays, since making one takes time of
the order of the document.
"""

from typing import Any

from pycrdt import Doc


class Scratch:
    """The document, and its copy."""

    def __init__(self) -> None:
        self.doc: Doc[Any] = Doc()
        """To read. Changed by `apply` only."""
        self._copy: Doc[Any] | None = Doc()
        """None if it has to be made again."""
        self._tried: bytes | None = None
        """What is in the copy, and not in the document."""

    def try_out(self, update: bytes, *, goes_on: bool = False) -> None:
        """See whether pycrdt can apply an update. The document does not change. Raises ValueError if it cannot.

        goes_on: whether it contains the one that was tried last.
        """
        if update == self._tried:
            return
        if self._tried is not None and not goes_on:
            self._copy = self._tried = None  # that one was never applied
        if self._copy is None:
            self._copy = Doc()
            self._copy.apply_update(self.doc.get_update())
        try:
            self._copy.apply_update(update)
        except BaseException as error:
            self._copy = None
            if not is_from_pycrdt(error):
                raise
            raise ValueError(str(error)) from error
        self._tried = update

    def apply(self, update: bytes) -> None:
        """Apply an update. Raises ValueError, and changes nothing, if pycrdt cannot."""
        self.try_out(update)
        self._tried = None
        try:
            self.doc.apply_update(update)
        except BaseException as error:  # the copy has it
            assert self._copy is not None
            self.doc, self._copy = self._copy, None
            if not is_from_pycrdt(error):
                raise


def is_from_pycrdt(error: BaseException) -> bool:
    """Whether it is an error of pycrdt, or of the Rust below it: a panic is no Exception of Python."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
