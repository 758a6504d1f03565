"""Figures of recorded traffic and faults over time, with a panel for each kind that occurred."""

import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure

from swarmbo.plotting.traffic import (
    faults_figure,
    plot_age,
    plot_failures,
    plot_fates,
    plot_network,
    plot_traffic,
    traffic_figure,
)
from swarmbo.records import (
    EdgeTraffic,
    Evaluation,
    LinkReport,
    NetworkRecord,
    RoundRecord,
    Sample,
    SolveReport,
    Traffic,
)


def sample(agent, measurement, **more):
    return Sample(agent=agent, location=[0.0], measurement=measurement, target=[0.0], distance=0.0, cost=0.0, **more)


def agreed(number, samples=(), **more):
    return RoundRecord(number, list(samples), report=SolveReport("deadline", links=LinkReport(ticks=9, **more)))


QUICK, SLOW = EdgeTraffic(10, 100, 8, 2, 16), EdgeTraffic(10, 100, 5, 5, 30)  # mean ages of 2 and 6
RECORDS = [
    RoundRecord(0, [sample("a", 1.0), sample("b", None)]),
    agreed(1, [sample("a", None), sample("b", None, declined=True)], edges={"a>b": QUICK, "b>a": SLOW}),
    agreed(2, [sample("a", 1.0)], edges={"a>b": EdgeTraffic(4, 40, 0, 4, 0)}, silent=("b",)),
    agreed(3, [sample("a", 1.0)], edges={"a>b": QUICK}, without=("a", "b"), clashes=1),
]
NETWORK = [NetworkRecord(0), NetworkRecord(1, {"a": 1}, 7, 2), NetworkRecord(2, {}, 0, 0)]


def heights(container):
    return [bar.get_height() for bar in container]


def test_messages_arrive_or_are_lost_as_recorded():
    ax = plot_fates(Figure().subplots(), RECORDS)
    arrived, lost = ax.containers
    assert heights(arrived) == [0, 13, 0, 8]
    assert heights(lost) == [0, 7, 4, 2]
    assert ax.get_title() == "Messages to agree: 38% lost"  # 13 of 34


def test_the_age_is_the_mean_over_arrived_messages():
    ax = plot_age(Figure().subplots(), RECORDS)
    rounds, ages = ax.lines[0].get_data()
    assert list(rounds) == [1, 3]  # nothing arrived in round 2
    assert list(ages) == pytest.approx([46 / 13, 2.0])
    edge = ax.collections[0].get_paths()[0].vertices
    assert (edge[:, 1].min(), edge[:, 1].max()) == (2.0, 6.0)


def test_failures_are_counted_by_kind():
    ax = plot_failures(Figure().subplots(), RECORDS)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert dict(zip(labels, map(heights, ax.containers), strict=True)) == {
        "measurements": [1, 1, 0, 0],  # declining is not a failure
        "silent agents": [0, 0, 1, 0],
        "agents without a choice": [0, 0, 0, 2],
        "clashes": [0, 0, 0, 1],
    }
    assert ax.get_title() == "Failures: 6 in all"


@pytest.mark.parametrize(
    ("joint", "count"),
    [
        (Evaluation([0.0], None), 1),
        (Evaluation([0.0], None, {"f": None, "g": 1.0, "h": None}), 1),
        (Evaluation([0.0], 1.0, {"f": 1.0}), 0),
    ],
)
def test_in_a_function_failures_are_evaluations_as_in_the_closing_table(joint, count):
    figure = faults_figure([RoundRecord(0, []), RoundRecord(1, [], joint=joint)])
    assert (figure is None) is (count == 0)
    if figure is not None:
        assert figure.axes[0].get_title(loc="left") == f"Failures: {count} in all"
        assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["evaluations"]


def test_restarts_are_marked_in_their_round():
    ax = plot_network(Figure().subplots(), NETWORK)
    repeated, refused = ax.containers
    assert (heights(repeated), heights(refused)) == ([0, 7, 0], [0, 2, 0])
    assert [list(line.get_xdata()) for line in ax.lines] == [[1, 1]]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert sorted(labels) == ["a process started again", "refused", "repeated"]
    frame = ax.get_legend().get_frame()  # lines and shades do not cross the legend
    assert (ax.get_legend().get_frame_on(), frame.get_alpha()) == (True, 1.0)


def test_there_is_a_panel_for_each_kind_of_fault_that_occurred():
    assert faults_figure([RoundRecord(0, [sample("a", 1.0)])]) is None
    alone = faults_figure([RoundRecord(0, [])], NETWORK)
    assert [ax.get_title(loc="left") for ax in alone.axes] == ["The fleet's network: 1 restart"]
    assert len(faults_figure(RECORDS, NETWORK).axes) == 4


def test_losses_of_shared_data_are_drawn_beside_losses_of_agreement_messages():
    links = LinkReport(ticks=4, edges={"a>b": SLOW})
    records = [msgspec.structs.replace(record, sharing_links=links) for record in RECORDS]
    figure = faults_figure(records, NETWORK)
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles[2:4] == ["Messages to share: 50% lost", "Age of measurements on arrival"]
    assert len(titles) == 6
    assert list(figure.axes[3].lines[0].get_ydata()) == [6.0] * 4


@pytest.mark.parametrize("plot", [plot_fates, plot_age, plot_failures])
def test_axes_of_counts_have_whole_numbers_even_for_small_counts(plot):
    edges = {"a>b": EdgeTraffic(1, 100, 1, 0, 1)}
    ax = plot(Figure().subplots(), [RoundRecord(0, []), agreed(1, [sample("a", None)], edges=edges)])
    ax.figure.canvas.draw()
    low, high = ax.get_ylim()
    assert {text.get_text() for text in ax.get_yticklabels() if low <= text.get_position()[1] <= high} == {"0", "1"}


@pytest.mark.parametrize("count", ["messages", "transmissions", "bytes"])
def test_bars_stack_sharing_on_coordination_as_recorded(run, count):
    records = run().records
    ax = plot_traffic(Figure().subplots(), records, count)
    coordination, sharing = ax.containers
    agreed = [getattr(r.report.traffic, count) if r.report else 0 for r in records]
    np.testing.assert_array_equal([bar.get_height() for bar in coordination], agreed)
    np.testing.assert_array_equal([bar.get_height() for bar in sharing], [getattr(r.sharing, count) for r in records])
    np.testing.assert_array_equal([bar.get_y() for bar in sharing], agreed)
    np.testing.assert_allclose([bar.get_center()[0] for bar in sharing], [r.round for r in records])


def test_the_title_states_the_total():
    records = [
        RoundRecord(0, [], sharing=Traffic(2, 20, 3)),
        RoundRecord(1, [], report=SolveReport("exact", traffic=Traffic(1000, 0, 0)), sharing=Traffic(4, 40, 6)),
    ]
    assert plot_traffic(Figure().subplots(), records, "messages").get_title() == "Messages: 1,006 in all"


def test_a_run_without_traffic_still_has_axes():
    figure = traffic_figure([RoundRecord(0, []), RoundRecord(1, [])])
    assert [ax.get_ylim() for ax in figure.axes] == [(0.0, 1.0)] * 2


@pytest.mark.parametrize(("hops", "panels"), [(1, ["messages", "bytes"]), (2, ["messages", "transmissions", "bytes"])])
def test_transmissions_have_a_panel_only_if_they_differ_from_messages(hops, panels):
    figure = traffic_figure([RoundRecord(n, [], sharing=Traffic(n, 9, n * hops)) for n in (1, 3)])
    assert [ax.get_ylabel() for ax in figure.axes] == [f"{panel} per round" for panel in panels]
