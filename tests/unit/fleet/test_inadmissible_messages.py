"""A member sends messages with valid digests and invalid content: no other member stops, and restarts work."""

import importlib.util
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import TransportError
from swarmbo.fleet.messages import DIGEST_BYTES, AgreementMessage, Receipt, RefusalCounts, decode, digest_of, encode
from swarmbo.fleet.plan import HUB
from swarmbo_envs import function_v0

from .rounds import alone, require_same

_FILE = Path(__file__).parents[1] / "agent" / "mutations.py"  # tests of agents are another package
_SPEC = importlib.util.spec_from_file_location("mutations", _FILE)
MUTATIONS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(MUTATIONS)
mutated, unfit = MUTATIONS.mutated, MUTATIONS.unfit
SMALL = {"seed": 3, "initial": 1, "coordination": sb.ADMM(rounds=4, starts=2, screened=16, polish_steps=4)}
TIMED = sb.ADMM(mode="asynchronous", deadline=8, patience=3, starts=2, inner_steps=1, screened=8)


def world():
    return function_v0.parallel_env(function="camel", outcomes="per-factor")


def poisoned(network, of, make, rng, share=0.3, most=10**6, instead=False, **faults):
    """A network on which invalid messages of one member follow or replace its messages."""

    class Poisoned(network):
        n_invalid = 0

        def send(self, sender, recipient, content):
            message = decode(content)
            is_invalid = (
                sender == of
                and not isinstance(message, Receipt | RefusalCounts)
                and self.n_invalid < most
                and rng.random() < share
            )
            if is_invalid:
                self.n_invalid += 1
                super().send(sender, recipient, make(message, content, rng))
            if not (is_invalid and instead):
                super().send(sender, recipient, content)

    return Poisoned(**faults)


def unfit_message(message, content, rng):
    """Make a message of an agreement invalid; return any other message unchanged."""
    return encode(AgreementMessage(unfit(message.payload, rng))) if isinstance(message, AgreementMessage) else content


def invalid_message(message, content, rng):
    """Change any message at random, in its payload or in its own fields."""
    if isinstance(message, AgreementMessage) and rng.random() < 0.7:
        return encode(AgreementMessage(mutated(message.payload, rng)))
    head = b"\0" * 12
    body = mutated(head + content[DIGEST_BYTES:], rng)[len(head) :]
    return digest_of(body) + body


@pytest.mark.parametrize("kill", [0.0, 0.03], ids=["alive", "killed"])
def test_invalid_messages_change_no_decision_and_their_sender_is_named(network, fleets, kill):
    wire = poisoned(network, "agent_1", unfit_message, np.random.default_rng(0))
    fleet = fleets(world(), wire, kill=kill, **SMALL)
    require_same(fleet.play(4), alone(world(), 4, **SMALL))
    assert wire.n_invalid > 10
    assert set(fleet.team.hub.inadmissible_by_sender) == {"agent_1"}
    assert bool(fleet.kills) == bool(kill)


def among_invalid(network, fleets, seed, n_invalid):
    """Run fleets until `n_invalid` invalid messages were sent. At the end of each fleet, members restart."""
    n_sent = 0
    while n_sent < n_invalid:
        rng = np.random.default_rng([seed, n_sent])
        wire = poisoned(network, "agent_1", invalid_message, rng, share=0.2, most=n_invalid - n_sent)
        fleet = fleets(world(), wire, kill=0.02, **SMALL)
        with suppress(TransportError):  # the hub may wait in vain
            fleet.play(4)
        for name in fleet.team.agents:
            fleet.come(name)
        n_sent += wire.n_invalid
    return n_sent


@pytest.mark.parametrize(("seed", "n_invalid"), [(1, 60), pytest.param(2, 600, marks=pytest.mark.slow)])
def test_invalid_content_never_stops_a_member(network, fleets, seed, n_invalid):
    assert among_invalid(network, fleets, seed, n_invalid) == n_invalid


def test_by_a_deadline_a_fleet_continues_without_a_member_whose_messages_are_refused(network, fleets):
    wire = poisoned(network, "agent_1", unfit_message, np.random.default_rng(0), share=1.0, instead=True)
    env = function_v0.parallel_env(function="additive-gp", parameters={"n_variables": 4}, outcomes="per-factor")
    fleet = fleets(env, wire, patience=20.0, **SMALL | {"coordination": TIMED})
    fleet.play(4)
    assert fleet.team.hub.absent == ("agent_1",)
    assert fleet.team.hub.membership.absent["agent_1"] == "others refused its messages"
    assert len(fleet.team.history) == 4


def test_invalid_messages_are_not_written_to_the_journal(network, fleets):
    fleet = fleets(world(), network(), **SMALL)
    other = next(name for name in fleet.team.agents if name != "agent_1")
    messages = [
        AgreementMessage(b"no message"),
        AgreementMessage(unfit(b"\0" * 12 + msgspec.msgpack.encode(["gain", "x", 1, 0.0]), None)),
    ]
    for message in messages:
        fleet.wire.send("agent_1", other, encode(message))
    fleet.members[other].step(1.0)
    assert fleet.members[other].inadmissible == {"agent_1": 2}
    assert not list(fleet.members[other]._journal.messages())
    assert HUB not in fleet.members[other].inadmissible
