"""What a run ends in when it has shown something wrong."""


class Failure(Exception):
    """`kind` is what has to stay the same when the run is cut down."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
