"""Test authority: certificates by which members of a fleet recognise one another."""

import ipaddress
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from swarmbo.boundary.extras import needed
from swarmbo.errors import ConfigError

AUTHORITY = "authority.pem"
_DAYS = 30
_ENCIPHERMENT = ("key_encipherment", "data_encipherment", "encipher_only", "decipher_only")
_NOT_FOR = (*_ENCIPHERMENT, "content_commitment", "key_agreement", "crl_sign")


def make_keys(folder: Path, hosts: Mapping[str, str]) -> list[Path]:
    """Make an authority, and a certificate and a key for each member at its host, valid for 30 days; the authority's
    key is not kept. A member needs ``authority.pem`` and its own two files. A folder with keys is refused.
    """
    maker = _Maker()
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / AUTHORITY).exists():
        raise ConfigError(f"{folder}: holds keys already; wanted another folder")
    issuer, signing = "swarmbo test authority", maker.key()
    written = [_write(folder / AUTHORITY, maker.certificate(issuer, signing, issuer, signing))]
    for name, host in hosts.items():
        key = maker.key()
        certificate = maker.certificate(name, key, issuer, signing, host)
        written += [_write(folder / f"{name}.pem", certificate), _write(folder / f"{name}.key", maker.text(key))]
    return written


class _Maker:
    def __init__(self) -> None:
        modules = ("x509", *(f"hazmat.primitives.{name}" for name in ("hashes", "serialization", "asymmetric.ec")))
        found = [needed(f"cryptography.{module}", "zenoh", "swarmbo fleet keys") for module in modules]
        self._x509, self._hashes, self._serialization, self._ec = found

    def key(self) -> Any:
        return self._ec.generate_private_key(self._ec.SECP256R1())

    def text(self, key: Any) -> bytes:
        form = self._serialization
        return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())

    def certificate(self, name: str, key: Any, issuer: str, signing: Any, host: str | None = None) -> bytes:
        """Certificate of a name's key, at a host; without a host it is the authority's own."""
        x509, now, is_authority = self._x509, datetime.now(UTC), host is None
        usage = x509.KeyUsage(
            digital_signature=not is_authority, key_cert_sign=is_authority, **dict.fromkeys(_NOT_FOR, False)
        )
        made = (
            x509.CertificateBuilder()
            .subject_name(self._name(name))
            .issuer_name(self._name(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))  # clocks differ
            .not_valid_after(now + timedelta(days=_DAYS))
            .add_extension(usage, critical=True)
            .add_extension(
                x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
            )
        )
        if host is not None:
            both = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
            made = made.add_extension(x509.SubjectAlternativeName([self._address(host)]), critical=False)
            made = made.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        return made.sign(signing, self._hashes.SHA256()).public_bytes(self._serialization.Encoding.PEM)

    def _name(self, name: str) -> Any:
        return self._x509.Name([self._x509.NameAttribute(self._x509.oid.NameOID.COMMON_NAME, name)])

    def _address(self, host: str) -> Any:
        try:
            return self._x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            return self._x509.DNSName(host)


def _write(path: Path, text: bytes) -> Path:
    """Write a file that only the owner may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return path
