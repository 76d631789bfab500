"""Certificates of a CA made for a test, as files."""

import datetime
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def _year(number: int) -> datetime.datetime:
    return datetime.datetime(number, 1, 1, tzinfo=datetime.UTC)


EXPIRED = _year(2001), _year(2002)
NOT_YET = _year(2101), _year(2102)


class Authority:
    """A CA, and the certificates that it issues."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.ca = directory / f"{name}.pem"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(self.ca)
        self._issued = 0

    def expire(self) -> None:
        """The CA's own certificate is one that has expired, of the same key."""
        now = x509.load_pem_x509_certificate(self._authority.cert_pem.bytes())
        key = serialization.load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        begins, ends = EXPIRED
        builder = x509.CertificateBuilder(
            now.issuer, now.subject, now.public_key(), now.serial_number, begins, ends
        )
        for extension in now.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        old = builder.sign(key, hashes.SHA256())
        self.ca.write_bytes(old.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *others: str,
        valid: tuple[datetime.datetime | None, datetime.datetime | None] = (None, None),
    ) -> dict[str, Any]:
        """Options of a node with that name in its certificate, and perhaps others. valid: from when to when."""
        self._issued += 1
        begins, ends = valid
        issued = self._authority.issue_cert(name, *others, not_before=begins, not_after=ends)
        stem = self.directory / f"{self.ca.stem}-{name}-{self._issued}"
        certificate, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        key.chmod(0o600)
        return {"certificate": certificate, "key": key, "ca": self.ca}
