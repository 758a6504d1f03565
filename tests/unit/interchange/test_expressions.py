"""Expressions in files: allowed ones have Python's values, and all others raise an error of one line."""

import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.errors import ConfigError
from swarmbo.interchange.expressions import Expression

NAMES = ("x", "y", "z")


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger expressions made of smaller ones."""
    binary = ["+", "-", "*", "//", "%", "/", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    templates = [
        *(f"({{}} {operator} {{}})" for operator in binary),
        "({} if {} else {})",
        "({} < {} <= {})",
        "({} in [{}, 2])",
        "max({}, {})",
        "min({}, {})",
        "(not {})",
        "(-{})",
        "abs({})",
        "round({})",
    ]

    def filled(form: str) -> st.SearchStrategy[str]:
        return st.tuples(*[inner] * form.count("{}")).map(lambda parts: form.format(*parts))

    return st.one_of(*map(filled, templates))


leaves = st.one_of(st.sampled_from(NAMES), st.sampled_from(["0", "1", "2.5", "-3", "True"]))


@given(st.recursive(leaves, grown, max_leaves=12), st.tuples(*[st.integers(-3, 3)] * 3))
@settings(deadline=None, max_examples=200)
def test_values_equal_those_of_python(text: str, numbers: tuple[int, int, int]) -> None:
    values = dict(zip(NAMES, numbers, strict=True))
    expression = Expression(text, "$")
    assert set(expression.names) <= set(NAMES)
    try:
        wanted = eval(text, {"__builtins__": {"abs": abs, "min": min, "max": max, "round": round}}, values)
        fits = not isinstance(wanted, complex) and abs(wanted) <= 1e100
    except ArithmeticError:
        fits = False
    if fits:
        assert expression.of(values) == pytest.approx(float(wanted), rel=1e-12)


def test_texts_can_be_compared() -> None:
    price = Expression("1000 if x == 'R' and y not in ['G', 'B'] else 0.5", "$")
    assert price.names == ("x", "y")
    assert [price.of({"x": x, "y": y}) for x, y in ("RR", "RG", "GR")] == [1000.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('id')", r"call \"__import__\('os'\)\.system\('id'\)\""),
        ("open('/etc/passwd')", 'call "open'),
        ("eval('1')", 'call "eval'),
        ("x.__class__", r"got 'x\.__class__'"),
        ("x[0]", r"got 'x\[0\]'"),
        ("[x for x in (1, 2)]", "got '.x for x in"),
        ("lambda: x", "got 'lambda: x'"),
        ("(y := x)", "got 'y := x'"),
        ("f'{x}'", "got \"f'"),
        ("max(*x)", r"call 'max\(\*x\)'"),
        ("max(x, key=abs)", "call 'max"),
        ("round()", "call 'round"),
        ("min(x)", r"call 'min\(x\)'; wanted abs\(a\), min\(a, b, …\)"),
        ("abs(x, y)", "call 'abs"),
        ("round(x, 1, 2)", "call 'round"),
        ("1j", "got '1j'"),
        ("b'x'", 'got "b'),
        ("None", "got 'None'"),
        ("x in y", "wanted a list"),
        ("x if", "one Python expression"),
        ("x; y", "one Python expression"),
        ("x = 1", "one Python expression"),
        ("", "one Python expression"),
        ("\x00", "one Python expression"),
        ("(" * 300 + "x" + ")" * 300, "expression"),
        ("-" * 5000 + "x", "expression"),
        ("x + " * 900 + "x", "nested too deep"),
        ("x in " + "x + " * 900 + "x", "wanted a list"),
        ("1 + " * 4000 + "1", "10000|10,000|at most"),
    ],
)
def test_other_expressions_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Expression(text, "$.constraints.c.function")
    assert caught.value.at == "$.constraints.c.function"
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x / (x - 2)", "x = 2, where"),
        ("9 ** 9 ** 9 ** 9", "not a number up to"),
        ("(((x ** 64) ** 64) ** 64) ** 64", "not a number up to"),
        ("10.0 ** 400", "not a number up to"),
        ("10 ** 10 ** 10", "not a number up to"),
        ("round(5, -300000000)", r"rounded to -3e\+08 digits, more than 400"),
        ("round(0.5, 10 ** 9)", "more than 400"),
        (f"abs(0x{'f' * 9000}) ** 64", "a number is beyond 1e"),
        (f"0x{'f' * 9000} % 7", "a number is beyond 1e"),
        ("x * 'a' * 10 ** 9", "is not a number"),
        ("'a' * 1000000000", "is not a number"),
        ("x < 'a'", "not supported"),
        ("(0 - x) ** 0.5", "not a number up to"),
        ("'R'", "where it is 'R'"),
        ("1e308 * 10 - 1e308 * 10", "not a number up to"),
        ("float('inf') - float('inf')", "not a number up to"),
        ("1e999 * 0", "not a number up to"),
        ("1e250 + x", "not a number up to"),
        ("float('nan')", "not a number up to"),
        ("int('x')", "invalid literal for int"),
        ("round('2')", "'2' is not a number"),
    ],
)
def test_an_expression_without_a_value_is_refused_with_the_values_of_its_variables(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Expression(text, "$.constraints.c").of({"x": 2})


@pytest.mark.parametrize("text", ["1e999 if x == 2 else 0", "float('inf')", 'x + float("inf")', "--1e999 * x"])
def test_an_infinite_cost_is_accepted(text: str) -> None:
    assert Expression(text, "$").of({"x": 2}) == float("inf")


def test_texts_of_numbers_are_converted() -> None:
    assert Expression("abs(int(x) - int(y)) + float('0.5')", "$").of({"x": "10", "y": "2"}) == 8.5


def test_an_infinite_loss_is_accepted() -> None:
    assert [Expression(t, "$").of({}) for t in ("-float('inf')", "float('-inf')")] == [-float("inf")] * 2


def test_names_are_those_that_are_written_and_not_their_normal_form() -> None:
    expression = Expression("µ1 + 10 * (μ1 +\n  100 * ﬁ)", "$")
    assert expression.names == ("µ1", "μ1", "ﬁ")  # the sign of micro, the Greek letter, a ligature
    assert expression.of({"µ1": 1, "μ1": 2, "ﬁ": 3}) == 3021.0


@pytest.mark.parametrize(("text", "value"), [("3 ** 70 % 7", 4.0), ("(2 ** 65 + 1) % 2", 1.0), ("(-1) ** 2**60", 1.0)])
def test_powers_of_integers_are_exact(text: str, value: float) -> None:
    assert Expression(text, "$").of({}) == value
