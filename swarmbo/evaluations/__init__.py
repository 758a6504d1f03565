"""Many evaluations at once: a log of asks and tells, executors, and a driver."""

from swarmbo.evaluations.ledger import Event as Event, Ledger as Ledger
