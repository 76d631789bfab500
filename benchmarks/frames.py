"""Bytes and time of messages and digests, and of long frames with and without zstd.

    python benchmarks/frames.py [--rounds N]

Sizes of contexts are those of the experiments with 4, 32 and 128 members (docs/experiments.md). Encoding is
once for all peers; decoding is at each of them. The best of five runs counts.
"""

import argparse
import json
import time
from collections.abc import Callable

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.encoder import EncodedPiece, Encoder
from crdtcast.wire.frames import encode

CONTEXTS = {4: 3, 32: 27, 128: 95}


def best(step: Callable[[], object], rounds: int) -> float:
    """Microseconds of CPU for one step."""
    runs = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(rounds):
            step()
        runs.append((time.process_time() - begin) / rounds * 1e6)
    return min(runs)


def stream_of(piece: EncodedPiece) -> bytes:
    stream = piece.stream
    if isinstance(stream, bytes):
        return stream
    return b"".join(map(stream.section, range(stream.sections)))


def compare(what: str, frame: Message | Digest, rounds: int, *, compresses: bool = False) -> None:
    for zstd in (False, True) if compresses else (False,):
        encoder, decoder = Encoder(), FrameDecoder()
        decoder.zstd = zstd
        encoded = stream_of(next(encoder.pieces([frame], zstd)))
        decoder.feed(b"".join(map(encode, encoder.numbering.names(0))))
        out = best(lambda: stream_of(next(encoder.pieces([frame], zstd))), rounds)  # noqa: B023
        back = best(lambda: decoder.feed(encoded), rounds)  # noqa: B023
        print(
            f"{what:>34} {'zstd' if zstd else '':>5} {len(encoded):>8,} bytes "
            f"{out:>7.1f} us to encode {back:>7.1f} us to decode"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4000)
    rounds = parser.parse_args().rounds
    for members, context in CONTEXTS.items():
        names = [f"node{n}.0006400000abc{n:04x}" for n in range(members)]
        dots = tuple(Dot(name, 1000 + n) for n, name in enumerate(names[1 : context + 1]))
        message = Message(Dot(names[0], 1234), dots, bytes(64))
        compare(f"message, {members} members", message, rounds)
        digest = Digest(DigestKind.NEWS, {name: 1000 + n for n, name in enumerate(names)})
        compare(f"digest, {members} members", digest, rounds)
    text = json.dumps(
        [{"order": n, "customer": f"c{n % 97}", "total": n * 3} for n in range(10_000)]
    )
    for length in (4096, 65_536, 262_144):
        message = Message(Dot("node0.0006400000abc0000", 1), (), text[:length].encode())
        compare(f"payload of {length:,} bytes of JSON", message, rounds // 20, compresses=True)


if __name__ == "__main__":
    main()
