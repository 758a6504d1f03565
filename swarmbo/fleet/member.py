"""An agent of a fleet: it takes letters and writes letters, and all else follows from those."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx

from swarmbo.agent import Agent
from swarmbo.deciding.setup import settings_again
from swarmbo.errors import TransportError
from swarmbo.fleet.journal import Journal
from swarmbo.fleet.letters import Begin, Came, End, Letter, Said, Word, opened
from swarmbo.fleet.mail import GOODBYE, Carrier, Mail
from swarmbo.fleet.plan import HUB, Plan
from swarmbo.problem import Problem
from swarmbo.transport import Envelope

_MAY_STOP = 0.5  # seconds between looks at whether it should stop


class Member:
    """One agent of a fleet.

    What it knows and said follows from the state it wrote down last and the letters it took since. So a process that is
    killed at any moment and started again goes on as if it had never been: it reads its letters again, and says again
    what follows from them, which others know already.

    Args:
        name: Of the agent.
        plan: Of the fleet.
        carrier: What moves its letters.
        folder: Of its journal.
        clock: In seconds; does not go back.

    Raises:
        ConfigError: If the settings need more than one agent knows, or the journal is damaged.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        carrier: Carrier,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.plan = name, plan
        self._clock, self._heard, self._journal = clock, clock(), Journal(folder)
        self._mail = Mail(carrier, self._journal.keep, clock)
        self._round, self._query, self.has_ended = 0, "", False
        self._has_spoken, self._has_learned = True, True
        self.refused = 0  # letters that nobody should have written
        state = self._journal.state()
        if state is None:
            settings = settings_again(plan.settings, {})
            self._agent = Agent(name, Problem.from_plain(plan.problem), **settings)
        else:
            self._agent = Agent.from_state_dict(state)
            self._round = int(state["json"]["round"])
            for recipient, content in state["json"]["outstanding"]:
                self._mail.post(recipient, bytes.fromhex(content))
        for sender, content in self._journal.letters():
            self._mail.remember(sender, content)
            self.take(sender, opened(content))

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Take letters until the hub ends the run, or ``stop`` says so.

        Raises:
            TransportError: If it is deciding, and nothing arrives for longer than the plan's patience.
        """
        while not (self.has_ended or stop()):
            self.step(_MAY_STOP)
        self._mail.settle(GOODBYE, stop)
        self.close()

    def step(self, seconds: float) -> None:
        """Take the next letter, if one comes in so long; write again what nobody has acknowledged.

        Raises:
            TransportError: As ``run``.
        """
        if (got := self._mail.read(seconds)) is not None:
            self._heard = self._clock()
            self.take(*got)
        elif not self._agent.is_finished and self._clock() - self._heard > self.plan.patience_s:
            raise TransportError(
                f"{self.name!r} is deciding and heard nothing for {self.plan.patience_s:g} s; wanted some news: is "
                "another member gone?"
            )

    def close(self) -> None:
        """Close its journal."""
        self._journal.close()

    def take(self, sender: str, letter: Letter) -> None:
        """Do what a letter asks for; one that is late changes nothing."""
        is_hub = sender == HUB
        match letter:
            case Said() if not is_hub:
                self._tick([Envelope(sender, self.name, letter.payload)])
            case Begin() if is_hub:
                if letter.round == self._round + 1 and self._has_learned:
                    self._begin(letter)
            case Came() if is_hub:
                if letter.round == self._round and self._has_spoken and not self._has_learned:
                    self._learn(letter)
            case End() if is_hub:
                self.has_ended = True
            case _:
                self.refused += 1

    def _begin(self, letter: Begin) -> None:
        self._round, self._has_spoken, self._has_learned = letter.round, False, False
        self._agent.links = None
        if letter.links is not None:
            links: nx.Graph[str] = nx.Graph()
            links.add_nodes_from(self._agent.problem.agents)
            links.add_edges_from(letter.links)
            self._agent.links = links
        self._query = self._agent.ask()
        self._tick([])

    def _tick(self, inbox: list[Envelope]) -> None:
        try:
            said = self._agent.tick(self._clock(), inbox)
        except TransportError:  # a message that its sender's checksum does not fit; nothing of it was taken
            self.refused += 1
            return
        for envelope in said:
            self._mail.write(envelope.recipient, Said(envelope.payload))
        if self._agent.is_finished and not self._has_spoken:
            self._has_spoken = True
            word, report = self._agent.word(), self._agent.report
            assert word is not None
            assert report is not None
            self._mail.write(HUB, Word(self._round, self._query, word, report, self._agent.sent))

    def _learn(self, letter: Came) -> None:
        outcome: Any = letter.factors
        noise: Any = letter.noise or None
        if letter.has_total:
            outcome = math.nan if letter.total is None else letter.total
            noise = letter.noise.get("total")
        self._agent.tell(self._query, outcome, point=letter.stood, noise_std=noise)
        self._has_learned = True
        state = self._agent.state_dict()
        state["json"]["round"] = self._round
        self._journal.turn(state, self._mail.outstanding)
