"""Saving and restoring of an agent."""

import math
from collections.abc import Mapping
from typing import Any, Self

import msgspec
import networkx as nx

from swarmbo.acquisition import Travel
from swarmbo.agent.begun import Deciding
from swarmbo.agent.participants import Participants
from swarmbo.agent.talking import Talking
from swarmbo.coordination.participant import Participant
from swarmbo.deciding.offers import PackedOffer
from swarmbo.deciding.own_rows import OwnRows
from swarmbo.deciding.setup import settings_again
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.problem import Problem
from swarmbo.records import Recommendation
from swarmbo.transport import Envelope

STATE_VERSION = 5  # 5: the query of each evaluation


class Saved(Talking):
    """Base of agents that can be saved, also while they are deciding."""

    def state_dict(self) -> dict[str, Any]:
        """State of the agent as ``{"json": plain data, "arrays": {name: array}}``, also while it is deciding."""
        begun, links = self._begun, self.links
        log, learner = (self._log, self._learner) if begun is None else (begun.log, begun.learner)
        plain_log, arrays = log.to_state()
        learned, more = learner.to_state()
        plain = {
            "version": STATE_VERSION,
            "name": self.name,
            "links": None if links is None else {"agents": list(links.nodes), "edges": [list(e) for e in links.edges]},
            "patience": None if math.isinf(self.patience) else self.patience,
            "level": self.level,
            "sites": None if self.sites is None else self.sites.tolist(),
            "has_base": self.has_base,
            "travels": self.travel is not None,
            "problem": self.problem.to_plain(),
            "settings": self._setup.to_plain(),
            "log": plain_log,
            "own": msgspec.to_builtins(self._own),
            "offered": msgspec.to_builtins(self._offered),
            "words": self._words,
            "recommended": msgspec.to_builtins(self._recommended),
            "turn": self._participant.decision,
            "company": msgspec.to_builtins(self.participants),
            "early": [[early.sender, msgspec.to_builtins(early.payload)] for early in (*self._early, *self._bundles)],
            "begun": None if begun is None else msgspec.to_builtins(begun.deciding),
            **learned,
        }
        return {"json": plain, "arrays": arrays | more}

    @classmethod
    def from_state_dict(
        cls,
        state: Mapping[str, Any],
        *,
        belief: object = None,
        acquisition: object = None,
        coordination: object = None,
        travel: Travel | None = None,
    ) -> Self:
        """Restore the agent of a ``state_dict``; it continues bit-identically, and does not send messages again.

        Args:
            state: Saved state.
            belief: Belief of your own making, if the agent had one: a state has its name only, and loads no code.
            acquisition: As ``belief``.
            coordination: As ``belief``.
            travel: Travel times, if the agent had any.

        Raises:
            StateVersionError: If another version of swarmbo wrote it.
            ConfigError: If a part of your own making, or travel times, are missing.
        """
        plain = state["json"]
        if plain.get("version") != STATE_VERSION:
            raise StateVersionError(f"got agent state version {plain.get('version')}; wanted {STATE_VERSION}")
        if plain["travels"] is not (travel is not None):
            had = "one when the state was written" if plain["travels"] else "none when the state was written"
            raise ConfigError(f"got {type(travel).__name__}; wanted what it had: {had}", at="$.travel")
        own = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        links = None
        if plain["links"] is not None:
            links = nx.Graph()
            links.add_nodes_from(plain["links"]["agents"])
            links.add_edges_from(plain["links"]["edges"])
        made = cls(  # an ``Agent``, which makes its own setup
            plain["name"],
            Problem.from_plain(plain["problem"]).watching(plain["level"]),
            links=links,
            patience=math.inf if plain["patience"] is None else plain["patience"],
            sites=plain["sites"],
            has_base=plain["has_base"],
            travel=travel,
            **settings_again(plain["settings"], own),
        )
        made._log = made._log.from_state(plain["log"], state["arrays"])
        made._learner = made._learner.from_state(plain, state["arrays"])
        made._recommended = msgspec.convert(plain["recommended"], Recommendation | None)
        made.participants = msgspec.convert(plain.get("company"), Participants | None)
        later, begun = msgspec.convert(plain["own"], OwnRows), msgspec.convert(plain["begun"], Deciding | None)
        made._offered = msgspec.convert(plain["offered"], dict[str, PackedOffer])
        if begun is not None:
            made._own, made._offered = begun.said, dict(begun.known)
            made._participant = Participant[Any](made.name, begun.turn)
            made._words = dict.fromkeys(plain["words"]) if begun.count else dict(plain["words"])
            before, *ticks = begun.by_tick(made.name)
            if not begun.is_under_way:
                made._put_aside(before)
            made._begin(begun.count, begun.offer)
            for inbox in (before, *ticks) if begun.is_under_way else ():
                made.tick(0.0, inbox)
            made._participant.since = None  # the clock differs
        else:
            early = msgspec.convert(plain["early"], tuple[tuple[str, bytes], ...])
            made._words = dict(plain["words"])
            made._participant = Participant[Any](made.name, plain["turn"])
            made._put_aside([Envelope(sender, made.name, payload) for sender, payload in early])
        made._own = later
        return made
