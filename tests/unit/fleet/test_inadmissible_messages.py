"""A member of a fleet writes letters with right digests and odd content: no other one ends, and restarts work."""

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

_FILE = Path(__file__).parents[1] / "agent" / "mutations.py"  # tests of agents are a package of their own
_SPEC = importlib.util.spec_from_file_location("mutations", _FILE)
MUTATIONS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(MUTATIONS)
mutated, unfit = MUTATIONS.mutated, MUTATIONS.unfit
SMALL = {"seed": 3, "initial": 1, "coordination": sb.ADMM(rounds=4, starts=2, screened=16, polish_steps=4)}
TIMED = sb.ADMM(mode="asynchronous", deadline=8, patience=3, starts=2, inner_steps=1, screened=8)


def world():
    return function_v0.parallel_env(function="camel", outcomes="per-factor")


def poisoned(network, of, make, rng, share=0.3, most=10**6, instead=False, **faults):
    """A network on which a member's letters are followed by odd ones, or are odd."""

    class Poisoned(network):
        n_odd = 0

        def send(self, sender, recipient, content):
            letter = decode(content)
            is_odd = (
                sender == of
                and not isinstance(letter, Receipt | RefusalCounts)
                and self.n_odd < most
                and rng.random() < share
            )
            if is_odd:
                self.n_odd += 1
                super().send(sender, recipient, make(letter, content, rng))
            if not (is_odd and instead):
                super().send(sender, recipient, content)

    return Poisoned(**faults)


def unfit_message(letter, content, rng):
    """Of a message of an agreement one that is none; any other letter is as it was."""
    return encode(AgreementMessage(unfit(letter.payload, rng))) if isinstance(letter, AgreementMessage) else content


def odd_letter(letter, content, rng):
    """Any letter, changed within its message, or in what it says itself."""
    if isinstance(letter, AgreementMessage) and rng.random() < 0.7:
        return encode(AgreementMessage(mutated(letter.payload, rng)))
    head = b"\0" * 12
    body = mutated(head + content[DIGEST_BYTES:], rng)[len(head) :]
    return digest_of(body) + body


@pytest.mark.parametrize("kill", [0.0, 0.03], ids=["alive", "killed"])
def test_what_can_be_no_message_changes_no_decision_and_its_sender_is_named(network, fleets, kill):
    wire = poisoned(network, "agent_1", unfit_message, np.random.default_rng(0))
    fleet = fleets(world(), wire, kill=kill, **SMALL)
    require_same(fleet.play(4), alone(world(), 4, **SMALL))
    assert wire.n_odd > 10
    assert set(fleet.team.hub.inadmissible_by_sender) == {"agent_1"}
    assert bool(fleet.kills) == bool(kill)


def among_odd(network, fleets, seed, n_odd):
    """Run fleets until so many odd letters were written; members are started again at the end of each."""
    handed = 0
    while handed < n_odd:
        rng = np.random.default_rng([seed, handed])
        wire = poisoned(network, "agent_1", odd_letter, rng, share=0.2, most=n_odd - handed)
        fleet = fleets(world(), wire, kill=0.02, **SMALL)
        with suppress(TransportError):  # the hub may wait in vain
            fleet.play(4)
        for name in fleet.team.agents:
            fleet.come(name)
        handed += wire.n_odd
    return handed


@pytest.mark.parametrize(("seed", "n_odd"), [(1, 60), pytest.param(2, 600, marks=pytest.mark.slow)])
def test_nobody_ends_by_letters_with_odd_content(network, fleets, seed, n_odd):
    assert among_odd(network, fleets, seed, n_odd) == n_odd


def test_by_a_deadline_a_fleet_goes_on_without_one_whose_letters_are_refused(network, fleets):
    wire = poisoned(network, "agent_1", unfit_message, np.random.default_rng(0), share=1.0, instead=True)
    env = function_v0.parallel_env(function="additive-gp", parameters={"n_variables": 4}, outcomes="per-factor")
    fleet = fleets(env, wire, patience=20.0, **SMALL | {"coordination": TIMED})
    fleet.play(4)
    assert fleet.team.hub.absent == ("agent_1",)
    assert fleet.team.hub.membership.absent["agent_1"] == "others refused its messages"
    assert len(fleet.team.history) == 4


def test_what_does_not_fit_is_not_written_down(network, fleets):
    fleet = fleets(world(), network(), **SMALL)
    other = next(name for name in fleet.team.agents if name != "agent_1")
    letters = [
        AgreementMessage(b"no message"),
        AgreementMessage(unfit(b"\0" * 12 + msgspec.msgpack.encode(["gain", "x", 1, 0.0]), None)),
    ]
    for letter in letters:
        fleet.wire.send("agent_1", other, encode(letter))
    fleet.members[other].step(1.0)
    assert fleet.members[other].inadmissible == {"agent_1": 2}
    assert not list(fleet.members[other]._journal.messages())
    assert HUB not in fleet.members[other].inadmissible
