"""The exception that ends a run in which something was wrong."""


class Failure(Exception):
    """Something was wrong in a run. `kind` has to stay the same when the run is shrunk."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
