"""Draw docs/images/architecture.svg: the way of a parameter and of a gradient through the package.

    python docs/images/architecture.py

Boxes have a light fill of their own and lines a middle grey, so the picture can be read on light and on
dark pages. tests/test_architecture.py fails if the file beside this one is not what it draws.
"""

from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1120, 660
INK, LINE, HEADING = "#1b1f2a", "#8791a5", "#4b5563"
BLUE, AMBER, GREEN, PURPLE = "#e6edfb", "#fcf1d8", "#e1f3e8", "#f3e6f5"
EDGES = {BLUE: "#5b7bc4", AMBER: "#b58a2b", GREEN: "#4c9a6a", PURPLE: "#96599f"}
STYLE = f"""\
text {{ fill: {INK}; font: 15px system-ui, "Segoe UI", Roboto, sans-serif }}
.name {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-weight: 600 }}
.place {{ font-size: 13px; font-style: italic }}
.heading {{ fill: #ffffff; font-weight: 600 }}
.arrow {{ stroke: {LINE}; stroke-width: 2.5; fill: none; marker-end: url(#head) }}"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return one line of text."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def box(x: int, y: int, width: int, height: int, fill: str, name: str, *lines: str) -> list[str]:
    """Return a box: a name of the code, where it stands, and what it does."""
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" '
        f'stroke="{EDGES[fill]}" stroke-width="1.5"/>',
        text(x + 14, y + 24, name, "name"),
    ]
    for number, line in enumerate(lines, start=1):
        kind = "place" if line.startswith("nero.") else ""
        parts.append(text(x + 14, y + 24 + 21 * number, line, kind))
    return parts


def heading(x: int, y: int, width: int, words: str) -> list[str]:
    """Return a heading with a background of its own."""
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="28" rx="14" fill="{HEADING}"/>',
        text(x + width / 2, y + 19, words, "heading", "middle"),
    ]


def arrow(*points: tuple[int, int]) -> str:
    """Return an arrow through these points."""
    return f'<polyline class="arrow" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'


def picture() -> str:
    """Return the whole picture as SVG."""
    parts = [
        *heading(10, 10, 310, "Once per parameter"),
        *box(10, 56, 310, 48, BLUE, "Nero(model)"),
        *box(10, 132, 310, 108, BLUE, "param_groups()", "nero.layout",
             "finds each layout from its module:", "role, neuron_dims, num_groups"),
        *box(10, 268, 310, 108, BLUE, "Layout.at()", "nero.core.neurons",
             "a layout on a shape gives Neurons:", "fan-in dims, fan-in, state shape"),
        *box(10, 404, 310, 108, BLUE, "Hyper, STATE", "nero.core.spec",
             "options are read and checked;", "state created, weights projected"),
        *box(10, 540, 310, 108, BLUE, "Prepared", "nero.optim.prepared",
             "neurons, options, backend, and the", "mesh dims to sum over"),
        *(arrow((165, y), (165, y + 26)) for y in (104, 240, 376, 512)),
        # From what is worked out once to the step.
        arrow((320, 594), (352, 594), (352, 94), (382, 94)),
        *heading(384, 10, 690, "At every step"),
        *box(384, 56, 690, 88, AMBER, "RelativeOptimizer.step()", "nero.optim.base",
             "weight, gradient, state, Prepared and lr become one Update per parameter"),
        *box(384, 172, 690, 88, AMBER, "Turning.step()", "nero.optim.turning",
             "sorts updates by backend; neurons split across ranks take the sharded step"),
        *box(384, 288, 160, 148, GREEN, "plain", "nero.backends.plain",
             "torch operations;", "the reference for", "all others, on any", "device"),
        *box(556, 288, 160, 148, GREEN, "cpu", "nero.backends.cpu",
             "numba, threads;", "reads a row once,", "writes it while", "it is in cache"),
        *box(728, 288, 160, 148, GREEN, "triton", "nero.backends.triton",
             "for GPUs: one", "launch for all", "neurons of the", "model"),
        *box(900, 288, 174, 148, GREEN, "sharded", "nero.distributed",
             "plain or cpu sums,", "one all-reduce per", "process group,", "plain or cpu writes"),
        *(arrow((x, 260), (x, 286)) for x in (464, 636, 808, 987)),
        arrow((729, 144), (729, 170)),
        *(arrow((x, 436), (x, 462)) for x in (464, 636, 808, 987)),
        *box(384, 464, 690, 88, PURPLE,
             "Gram: ww w1 wg gg g1 \u2192 Turn: p, q, r \u2192 w' = p*w + q*g + r",
             "nero.core.gram, nero.core.rule",
             "one rule on all paths: inner products, coefficients, new rows; kernels reimplement it"),
        arrow((729, 552), (729, 578)),
        *box(384, 580, 690, 68, AMBER, "weight, state",
             "written in place; gradients are only read"),
        arrow((1074, 614), (1100, 614), (1100, 100), (1076, 100)),
    ]  # fmt: skip
    head = (
        f'<marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="5" markerHeight="5" '
        f'orient="auto"><path d="M0 0L10 5L0 10z" fill="{LINE}"/></marker>'
    )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        "<title>How a parameter and its gradient pass through nero</title>\n"
        f"<style>{STYLE}</style>\n<defs>{head}</defs>\n{body}\n</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
