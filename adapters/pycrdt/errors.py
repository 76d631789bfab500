"""Errors of replicated Yjs documents."""

from crdtcast.exceptions import InvalidOperationError


class MissingUpdatesError(InvalidOperationError):
    """An update needs what this replica does not have. Nothing was applied or sent.

    state_vector: what this replica has, as Yjs encodes it. The author of the update answers it with all that is missing
    (`doc.get_update(error.state_vector)` of pycrdt; a sync step 1 of the y-protocols). Apply the answer instead.
    """

    def __init__(self, message: str, *, state_vector: bytes) -> None:
        super().__init__(message)
        self.state_vector = state_vector
