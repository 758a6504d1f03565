import pytest

from swarmbo.plotting import style


def labels_of(scale, values, **options):
    with style.applied():
        figure = style.new_figure(4, 4)
        ax = figure.subplots()
        ax.plot(range(len(values)), values)
        style.set_log(ax, scale, **options)
    figure.canvas.draw()
    return [label.get_text() for label in ax.get_yticklabels()]


@pytest.mark.parametrize(
    ("scale", "values", "options", "some"),
    [
        ("log", [1e-2, 1.0, 1e3], {}, {"10⁻²", "10⁰", "10³"}),
        ("symlog", [-1.0, 0.0, 20.0], {"linthresh": 1e-2}, {"−10⁰", "−10⁻²", "0", "10⁻²", "10¹"}),
    ],
)
def test_labels_of_a_logarithmic_axis_are_plain_text(scale, values, options, some):
    labels = labels_of(scale, values, **options)
    assert some <= set(labels)
    assert not any("$" in label or "{" in label or "math" in label for label in labels)


def test_a_dollar_is_a_dollar(tmp_path):
    with style.applied():
        figure = style.new_figure(4, 4)
        text = figure.subplots().set_title(r"costs in $ and \$, $\frac{$")
    assert not text.get_parse_math()
    assert style.save(figure, tmp_path / "odd.png", 40).is_file()
