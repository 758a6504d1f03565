"""A run whose points are evaluated by workers: the ledger is its state, and each told evaluation is a round."""

from swarmbo.evaluations import Driver, Workers, make_executor
from swarmbo.evaluations.driver import Clock
from swarmbo.runs.evaluating import CopiedWorld
from swarmbo.runs.report import Summary, WorkersReport
from swarmbo.runs.rounds import Drive, begin, end
from swarmbo.runs.stored_files import RESULTS
from swarmbo.runs.told_rounds import ToldRounds


def drive_workers(given: Drive, workers: Workers, trust: bool) -> Summary:
    """Run from the state of the folder to the end, with workers."""
    scenario, path = given.scenario, given.folder.path
    begun = begin(given)
    work = CopiedWorld.of(scenario, trust)
    rounds = ToldRounds(given, begun)
    ledger = rounds.ledger()
    for event in ledger.events:
        given.calls.watch(event)
    ledger.watchers.append(given.calls.watch)
    results = path / RESULTS
    results.mkdir(exist_ok=True)
    executor = make_executor(workers, work, results, scenario.step_timeout_s, scenario.modules or ())
    try:
        Driver(
            ledger,
            executor,
            workers.count,
            scenario.rounds,
            rounds.tell,
            workers.mode == "synchronous",
            results,
            scenario.when_step_fails == "stop",
        ).run()
    finally:
        executor.close()
    for late in results.iterdir():  # a worker of a killed driver may have written it again
        late.unlink()
    results.rmdir()
    clock = Clock.of(ledger.events, workers.count)
    return end(given, begun, begun.truth, WorkersReport(workers.count, workers.mode, *clock))
