"""Agents that hold their own data, decide, and agree by messages; each may run in its own process."""

from swarmbo.agent.agent import Agent as Agent
from swarmbo.agent.process import RemoteAgent as RemoteAgent, serve as serve
from swarmbo.coordination.participant import Ticking as Ticking, may_be_lost as may_be_lost, run as run
