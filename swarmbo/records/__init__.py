"""Records: solve reports, samples, rounds, and the truth of a simulated environment.

They are plain values. Plots and tables start from them, never from live objects.
"""

from swarmbo.records.rounds import (
    TRUE_MAXIMUM as TRUE_MAXIMUM,
    Evaluation as Evaluation,
    Goal as Goal,
    GroundTruth as GroundTruth,
    Labels as Labels,
    Neglected as Neglected,
    Query as Query,
    Recommendation as Recommendation,
    RoundRecord as RoundRecord,
    Sample as Sample,
    Score as Score,
)
from swarmbo.records.solve_report import (
    EdgeTraffic as EdgeTraffic,
    LinkReport as LinkReport,
    NetworkRecord as NetworkRecord,
    SolveReport as SolveReport,
    Status as Status,
    Traffic as Traffic,
    by_name as by_name,
)
