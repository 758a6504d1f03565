"""Network link of a member: a Zenoh session with all endpoints listed, access rules, and certificates for tests."""

import ipaddress
import json
import os
import queue
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from swarmbo.errors import ConfigError, needed
from swarmbo.fleet.messages import MAX_MESSAGE_BYTES
from swarmbo.fleet.plan import Plan, checked_hosts

_EXTRA = "zenoh"
AUTHORITY = "authority.pem"
_ISSUER, _DAYS = "swarmbo test authority", 30
_ENCIPHERMENT = ("key_encipherment", "data_encipherment", "encipher_only", "decipher_only")
_NOT_FOR = (*_ENCIPHERMENT, "content_commitment", "key_agreement", "crl_sign")
Arrival = tuple[str, bytes]  # the sender, which is authenticated with keys, and the content


class Link:
    """Link of a member to all other members of a fleet, which it dials without discovery, and its queue of arrivals.

    A message from ``a`` to ``b`` has the key ``swarmbo/RUN/b/a``; ``join`` as RUN invites an agent of any run. With
    ``tls`` and ``quic`` a member sends and receives only messages under the name in its certificate.
    """

    def __init__(self, name: str, plan: Plan) -> None:
        zenoh = needed("zenoh", _EXTRA, "a fleet")
        self.name, self.plan = name, plan
        self._arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        config = zenoh.Config()
        for path, value in session_settings(name, plan).items():
            config.insert_json5(path, json.dumps(value))
        try:
            self._session = zenoh.open(config)
        except zenoh.ZError as error:
            # the rest are positions in Zenoh's own source
            why = str(error).split(" [")[0].split(" at /")[0].rstrip(":")
            got = f"{name!r} cannot listen at {plan.endpoints[name]}: {why}"
            raise ConfigError(f"{got}; is the port taken? wanted another --port", at="--port") from error
        keys = [f"swarmbo/{run}/{name}/*" for run in (plan.run, "join")]
        self._subscribers = [self._session.declare_subscriber(key, self._receive) for key in keys]

    def send(self, recipient: str, content: bytes) -> None:
        """Send without confirmation.

        The option ``express`` is off: it would make each message a batch, and Zenoh queues only two batches per link
        and drops others. A longer queue would fill with repeated messages before links with high loss.
        """
        self._session.put(f"swarmbo/{self.plan.run}/{recipient}/{self.name}", content)

    def invite(self, recipient: str, content: bytes) -> None:
        """Send to an agent of any run."""
        self._session.put(f"swarmbo/join/{recipient}/{self.name}", content)

    def wait(self, seconds: float) -> Arrival | None:
        """Next arrival; None if there is none in time."""
        try:
            return self._arrivals.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """End the session."""
        try:
            self._session.close()
        except Exception as error:
            if type(error).__name__ != "ZError":
                raise

    def _receive(self, sample: Any) -> None:
        sender = str(sample.key_expr).rpartition("/")[2]
        if sender in self.plan.endpoints and sender != self.name and len(sample.payload) <= MAX_MESSAGE_BYTES:
            self._arrivals.put((sender, bytes(sample.payload)))


def session_settings(name: str, plan: Plan) -> Mapping[str, Any]:
    """Zenoh's settings of one member."""
    other_endpoints = {other: endpoint for other, endpoint in plan.endpoints.items() if other != name}
    settings: dict[str, Any] = {
        "mode": "peer",
        "listen/endpoints": [plan.endpoints[name]],
        "connect/endpoints": list(other_endpoints.values()),
        "connect/timeout_ms": -1,  # absent members are dialled until they appear, in the background
        "connect/exit_on_failure": False,
        "connect/retry": {"period_init_ms": 100, "period_max_ms": 1000, "period_increase_factor": 1.5},
        "open/return_conditions": {"connect_scouted": False, "declares": False},
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/link/rx/max_message_size": MAX_MESSAGE_BYTES,
    }
    if plan.keys is None:
        return settings
    own_files = {"private_key": f"{name}.key", "certificate": f"{name}.pem"}
    named = {f"{end}_{kind}": file for end in ("listen", "connect") for kind, file in own_files.items()}
    files = {kind: Path(plan.keys) / file for kind, file in {"root_ca_certificate": AUTHORITY, **named}.items()}
    if missing := [path for path in files.values() if not path.is_file()]:
        raise ConfigError(f"{missing[0]}: no such file; wanted a folder that `swarmbo fleet keys` made", at="--keys")
    for kind, member in {"root_ca_certificate": None, "listen_certificate": name}.items():
        _require_valid(files[kind], member)
    checks = {"enable_mtls": True, "verify_name_on_connect": True}
    settings["transport/link/tls"] = {**{kind: str(path) for kind, path in files.items()}, **checks}
    settings["access_control"] = _access(name, list(other_endpoints))
    return settings


def _require_valid(path: Path, member: str | None) -> None:
    """Refuse a certificate that is not valid now or is another member's: the other members would refuse it silently."""
    x509, now = needed("cryptography.x509", _EXTRA, "a fleet with keys"), datetime.now(UTC)
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; wanted a certificate, in PEM", at="--keys") from error
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= now <= last:
        got = f"{path}: valid from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}, and it is {now:%Y-%m-%d %H:%M}"
        raise ConfigError(f"{got} UTC; wanted new keys of all members, by `swarmbo fleet keys`", at="--keys")
    names = [part.value for part in certificate.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)]
    if member not in (None, *names):
        raise ConfigError(f"{path}: is the certificate of {names}; wanted that of {member!r}", at="--keys")


def _access(name: str, others: list[str]) -> dict[str, Any]:
    """Access rules: each other member may send messages under its name and receive its own; all else is denied."""
    rules, policies = list[dict[str, Any]](), list[dict[str, Any]]()
    for other in others:
        allowed = (
            ("ingress", "put", f"swarmbo/*/{name}/{other}"),
            ("ingress", "declare_subscriber", f"swarmbo/*/{other}/*"),
            ("egress", "put", f"swarmbo/*/{other}/{name}"),
            ("egress", "declare_subscriber", f"swarmbo/*/{name}/*"),
        )
        member_rules: list[dict[str, Any]] = [
            {"id": f"{other} {flow} {kind}", "flows": [flow], "messages": [kind], "key_exprs": [key]}
            for flow, kind, key in allowed
        ]
        rules += [{**rule, "permission": "allow"} for rule in member_rules]
        policies.append({"rules": [rule["id"] for rule in member_rules], "subjects": [other]})
    subjects = [{"id": other, "cert_common_names": [other]} for other in others]
    denied = {"enabled": True, "default_permission": "deny"}
    return {**denied, "rules": rules, "subjects": subjects, "policies": policies}


def make_keys(folder: Path, hosts: Mapping[str, str]) -> list[Path]:
    """Make an authority (its key is not kept), and a certificate and key per member and host, valid for 30 days."""
    hosts = checked_hosts(hosts)
    modules = ("x509", *(f"hazmat.primitives.{name}" for name in ("hashes", "serialization", "asymmetric.ec")))
    x509, hashes, form, ec = (needed(f"cryptography.{module}", _EXTRA, "swarmbo fleet keys") for module in modules)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / AUTHORITY).exists():
        raise ConfigError("holds keys already; wanted another folder", at=str(folder))
    now, signing = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())

    def name_of(member: str) -> Any:
        return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, member)])

    def certificate(member: str, key: Any, host: str | None = None) -> bytes:
        """Certificate of a member's key, at a host; without a host it is the authority's own."""
        is_authority, unused = host is None, dict.fromkeys(_NOT_FOR, False)
        usage = x509.KeyUsage(digital_signature=not is_authority, key_cert_sign=is_authority, **unused)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name_of(member))
            .issuer_name(name_of(_ISSUER))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))  # clocks differ
            .not_valid_after(now + timedelta(days=_DAYS))
            .add_extension(usage, critical=True)
            .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        )
        if host is not None:
            try:
                address = x509.IPAddress(ipaddress.ip_address(host))
            except ValueError:
                address = x509.DNSName(host)
            both = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
            builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        return builder.sign(signing, hashes.SHA256()).public_bytes(form.Encoding.PEM)

    written = [_write(folder / AUTHORITY, certificate(_ISSUER, signing))]
    for member, host in hosts.items():
        key = ec.generate_private_key(ec.SECP256R1())
        text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        for kind, content in {"pem": certificate(member, key, host), "key": text}.items():
            written.append(_write(folder / f"{member}.{kind}", content))
    return written


def _write(path: Path, text: bytes) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return path
