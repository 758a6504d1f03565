"""Constraint expressions, evaluated without running code: a few kinds of nodes of a parsed expression.

An expression becomes nested functions of the variables' values. Permitted are numbers, texts, ``True`` and ``False``;
``+ - * / // % **`` on numbers; comparisons, ``in`` with a literal list, ``and``, ``or``, ``not``, ``… if … else …``;
``abs``, ``min``, ``max``, ``round``, ``bool`` of numbers; ``int`` and ``float`` of numbers and texts. Integers and
finite results beyond 1e200 are refused at every step, and so is rounding to more digits, so that every step is fast.
"""

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from swarmbo.coordination.tables import LARGEST
from swarmbo.errors import ConfigError

Values = Mapping[str, Any]
Evaluated = Callable[[Values], Any]

LONGEST = 10_000  # characters
_MOST_LEVELS = 200
_TOO_LARGE = f"a result is not a number up to {LARGEST:g} in size"
_MOST_DIGITS = 400


def _rounded(number: Any, digits: Any = None) -> Any:
    if digits is not None and abs(digits) > _MOST_DIGITS:
        raise ValueError(f"it is rounded to {digits:g} digits, more than {_MOST_DIGITS}")
    return round(number, digits)


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda a, b: a**b if abs(size := float(a) ** b) <= LARGEST else size,  # integers could become very long
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,  # equal to `==` for these values
    ast.IsNot: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_CALLED: dict[tuple[str, int], Callable[..., Any]] = {  # by name and number of arguments; 3: three or more
    **{(part.__name__, 1): part for part in (abs, int, float, bool)},
    **{(part.__name__, n): part for part in (min, max) for n in (2, 3)},
    **{("round", n): _rounded for n in (1, 2)},
}
_CALLS = "abs(a), min(a, b, …), max(a, b, …), round(a), round(a, digits), int(a), float(a), float('inf'), bool(a)"


class Expression:
    """An expression of ``names`` in order of appearance; a ConfigError if it is too long, or not as permitted."""

    def __init__(self, text: str, at: str) -> None:
        self.at, self._names, self._text = at, dict[str, None](), text.strip()
        if len(text) > LONGEST:
            raise self._refusal(f"an expression of {len(text)} characters", f"at most {LONGEST}")
        try:
            with warnings.catch_warnings(action="ignore"):  # about backslashes in texts
                tree = ast.parse(self._text, mode="eval")
            self._lines = self._text.encode().splitlines()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            line = " ".join(text.split())[:60]
            raise self._refusal(repr(line), "one Python expression, as `abs(x - y) * 0.5`") from None
        self.n_steps = 0
        self._value = self._compile(tree.body, _MOST_LEVELS)
        self.names = tuple(self._names)

    def of(self, values: Values) -> float:
        """Value of the expression at some values of its variables."""
        try:
            value = self._value(values)
            if isinstance(value, int | float) and not LARGEST < abs(value) < float("inf") and float(value) == value:
                return float(value)
        except (ArithmeticError, TypeError, ValueError) as error:
            why = _TOO_LARGE if isinstance(error, OverflowError) else error
            raise self._refusal(f"{_words(values)}, where {why}", "a number for every combination of values") from None
        raise self._refusal(f"{_words(values)}, where it is {value!r}", "one up to 1e200 that float64 does not round")

    def _refusal(self, got: str, wanted: str) -> ConfigError:
        return ConfigError(f"got {got}; wanted {wanted}", at=self.at)

    def _compile(self, node: ast.expr, depth: int) -> Evaluated:
        self.n_steps += 1
        if depth == 0:
            raise self._refusal("an expression nested too deep", f"at most {_MOST_LEVELS} levels")
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as constant):
                return lambda _: constant
            case ast.Name():  # ``node.id`` is normalised: for the sign of micro it has the Greek letter
                name = self._lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
                self._names[name] = None
                return lambda values: values[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self._arithmetic(_ARITHMETIC[type(op)], [left, right], depth)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._compile(operand, depth - 1)
                return lambda values: not inner(values)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
                return self._arithmetic(_SIGNS[type(op)], [operand], depth)
            case ast.BoolOp(op=op, values=operands):
                return self._boolean(op, [self._compile(operand, depth - 1) for operand in operands])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition, then, otherwise = (self._compile(part, depth - 1) for part in (test, body, orelse))
                return lambda values: then(values) if condition(values) else otherwise(values)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison(ops, [left, *comparators], depth)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (name, min(len(args), 3)) in _CALLED:
                return self._arithmetic(_CALLED[name, min(len(args), 3)], args, depth)
            case ast.Call():
                raise self._refusal(f"the call {self._source(node)!r}", _CALLS)
            case _:
                permitted = "numbers, texts, arithmetic, comparisons, `a if b else c`, abs, min"
                raise self._refusal(repr(self._source(node)), permitted)

    def _source(self, node: ast.expr) -> str:
        return " ".join((ast.get_source_segment(self._text, node) or type(node).__name__).split())[:60]

    def _arithmetic(self, function: Callable[..., Any], operands: list[ast.expr], depth: int) -> Evaluated:
        parts = [self._compile(operand, depth - 1) for operand in operands]

        def value(values: Values) -> Any:
            numbers = [part(values) for part in parts]
            if function in (int, float) and isinstance(numbers[0], str):
                numbers = [function(numbers[0])]
            for number in numbers:
                if not isinstance(number, int | float):
                    raise TypeError(f"{number!r} is not a number")
                if isinstance(number, int) and abs(number) > LARGEST:
                    raise ValueError(f"a number is beyond {LARGEST:g}")
            result = function(*numbers)
            fits = abs(result) <= LARGEST or (abs(result) == math.inf and math.inf in map(abs, numbers))
            if isinstance(result, complex) or not fits:
                raise ValueError(_TOO_LARGE)
            return result

        return value

    def _boolean(self, op: ast.boolop, parts: list[Evaluated]) -> Evaluated:
        is_and = isinstance(op, ast.And)

        def value(values: Values) -> Any:
            found: Any = is_and
            for part in parts:
                if bool(found := part(values)) != is_and:
                    break
            return found

        return value

    def _comparison(self, ops: list[ast.cmpop], operands: list[ast.expr], depth: int) -> Evaluated:
        parts = [
            self._literal_list(operand, depth)
            if k and isinstance(ops[k - 1], ast.In | ast.NotIn)
            else self._compile(operand, depth - 1)
            for k, operand in enumerate(operands)
        ]
        tests = [_COMPARED[type(op)] for op in ops]

        def value(values: Values) -> bool:
            left = parts[0](values)
            for test, part in zip(tests, parts[1:], strict=True):
                right = part(values)
                if not test(left, right):
                    return False
                left = right
            return True

        return value

    def _literal_list(self, node: ast.expr, depth: int) -> Evaluated:
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            raise self._refusal(f"`in {self._source(node)}`", "a list, as `x in [1, 2]`")
        parts = [self._compile(item, depth - 1) for item in node.elts]
        return lambda values: [part(values) for part in parts]


def _words(values: Values) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())
