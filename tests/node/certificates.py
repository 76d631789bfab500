"""Certificates of a CA made for a test, as files."""

import datetime
from pathlib import Path
from typing import Any

import trustme

LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """A CA, and the certificates that it issues."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.ca = directory / f"{name}.pem"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(self.ca)
        self._issued = 0

    def issue(self, name: str, *others: str, expired: bool = False) -> dict[str, Any]:
        """Options of a node with that name in its certificate, and perhaps others."""
        self._issued += 1
        times = {"not_before": LONG_AGO, "not_after": LONG_AGO.replace(year=2002)}
        issued = self._authority.issue_cert(name, *others, **(times if expired else {}))
        stem = self.directory / f"{self.ca.stem}-{name}-{self._issued}"
        certificate, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return {"certificate": certificate, "key": key, "ca": self.ca}
