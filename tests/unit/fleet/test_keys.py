"""Keys with which members could not connect are refused before the run starts."""

import shutil

import pytest

pytest.importorskip("cryptography")

from swarmbo.errors import ConfigError
from swarmbo.fleet import link
from swarmbo.fleet.link import make_keys, session_settings
from swarmbo.fleet.plan import HUB, Plan, endpoints_of


@pytest.fixture
def plan(tmp_path):
    ends = endpoints_of(["a", "b"], "tls", 7447)
    return Plan(run="three", endpoints=ends, problem={}, settings={}, keys=str(tmp_path / "keys"))


def test_keys_are_accepted_until_they_expire(plan, tmp_path, monkeypatch):
    hosts = dict.fromkeys([HUB, "a", "b"], "127.0.0.1")
    make_keys(tmp_path / "keys", hosts)
    assert session_settings("a", plan)["transport/link/tls"]["enable_mtls"]
    shutil.rmtree(tmp_path / "keys")
    monkeypatch.setattr(link, "_DAYS", -0.01)
    make_keys(tmp_path / "keys", hosts)
    with pytest.raises(ConfigError, match=r"--keys: .*authority.pem: valid from .* UTC; wanted new keys of all"):
        session_settings("a", plan)


def test_a_certificate_of_another_member_or_an_invalid_one_is_refused(plan, tmp_path):
    make_keys(tmp_path / "keys", dict.fromkeys([HUB, "a", "b"], "127.0.0.1"))
    shutil.copy(tmp_path / "keys" / "b.pem", tmp_path / "keys" / "a.pem")
    with pytest.raises(ConfigError, match=r"a.pem: is the certificate of \['b'\]; wanted that of 'a'"):
        session_settings("a", plan)
    (tmp_path / "keys" / "a.pem").write_text("a")
    with pytest.raises(ConfigError, match=r"a.pem: .*; wanted a certificate, in PEM"):
        session_settings("a", plan)
