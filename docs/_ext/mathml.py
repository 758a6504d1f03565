"""Formulas as MathML, which browsers display without a script or a network."""

from typing import Any

from docutils.utils.math import wrap_math_code
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer of formulas."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True}


def _inline(translator: Any, node: Any) -> None:
    _write(translator, node, as_block=False)


def _block(translator: Any, node: Any) -> None:
    _write(translator, node, as_block=True)


def _write(translator: Any, node: Any, as_block: bool) -> None:
    from docutils import nodes

    code = wrap_math_code(node.astext(), as_block)
    translator.body.append(tex2mathml(code, as_block=as_block))
    raise nodes.SkipNode
