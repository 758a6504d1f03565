import numpy as np
import pytest
from matplotlib.figure import Figure

from swarmbo.plotting.traffic import plot_traffic, traffic_figure
from swarmbo.records import RoundRecord, SolveReport, Traffic


@pytest.mark.parametrize("count", ["messages", "transmissions", "bytes"])
def test_bars_stack_sharing_on_coordination_as_recorded(run, count):
    records = run().records
    ax = Figure().subplots()
    assert plot_traffic(ax, records, count) is ax
    coordination, sharing = ax.containers
    agreed = [getattr(r.report.traffic, count) if r.report else 0 for r in records]
    np.testing.assert_array_equal([bar.get_height() for bar in coordination], agreed)
    np.testing.assert_array_equal([bar.get_height() for bar in sharing], [getattr(r.sharing, count) for r in records])
    np.testing.assert_array_equal([bar.get_y() for bar in sharing], agreed)
    np.testing.assert_allclose([bar.get_center()[0] for bar in sharing], [r.round for r in records])


def test_title_tells_the_total():
    records = [
        RoundRecord(0, [], sharing=Traffic(2, 20, 3)),
        RoundRecord(1, [], report=SolveReport("exact", traffic=Traffic(1000, 0, 0)), sharing=Traffic(4, 40, 6)),
    ]
    ax = Figure().subplots()
    plot_traffic(ax, records, "messages")
    assert ax.get_title() == "Messages: 1,006 in all"


def test_a_run_without_traffic_has_an_axis_all_the_same():
    figure = traffic_figure([RoundRecord(0, []), RoundRecord(1, [])])
    assert [ax.get_ylim() for ax in figure.axes] == [(0.0, 1.0)] * 2


@pytest.mark.parametrize(("hops", "panels"), [(1, ["messages", "bytes"]), (2, ["messages", "transmissions", "bytes"])])
def test_transmissions_have_a_panel_where_they_are_not_the_messages(hops, panels):
    figure = traffic_figure(
        [RoundRecord(0, [], sharing=Traffic(1, 9, 1)), RoundRecord(1, [], sharing=Traffic(3, 9, 3 * hops))]
    )
    assert [ax.get_ylabel() for ax in figure.axes] == [f"{panel} per round" for panel in panels]
