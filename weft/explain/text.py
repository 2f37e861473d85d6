"""An explanation as text: a line for each loop, or all there is to say."""

from __future__ import annotations

from weft.explain.explained import Explained
from weft.explain.memory import memory_lines
from weft.explain.plans import plan_line, plan_lines, value_lines
from weft.explain.words import double_lines, loop_lines, signature_text, sizes_text, unused_lines, unused_text, wrapped


def short(explained: Explained) -> str:
    """The verdicts: a line for each loop, and one for the plan."""
    lines = [*_head(explained), *(f"  {line}" for line in loop_lines(explained.found, detail=False))]
    lines += [f"  {line}" for line in double_lines(explained.written)]
    if explained.analysis is not None:
        lines.append(f"  plan on a GPU: {plan_line(explained.launches)}")
        lines += [f"    {line}" for line in explained.operands]
        lines += [f"  {line}" for line in unused_lines(explained.unused)]
    return "\n".join(lines) + "\n"


def detailed(explained: Explained) -> str:
    """The loops and why, the statements and what each needs from which, the program that runs, the plan."""
    lines = [*_head(explained), "", "Loops", *(f"  {line}" for line in loop_lines(explained.schedule))]
    doubles = double_lines(explained.written)
    lines += ["", "In double precision", *(f"  {line}" for line in doubles)] if doubles else []
    lines += ["", "Statements and dependences", *_indented(explained.graph.to_text())]
    lines += ["", "The program that runs", *_indented(explained.program)]
    for launch in explained.launches:
        several = f" of {launch.nest.name}" if len(explained.launches) > 1 else ""
        lines += ["", f"Plan{several} on a GPU", *(f"  {line}" for line in plan_lines(launch, explained.numbers))]
        values = value_lines(launch, explained.numbers)
        lines += ["", *(f"  {line}".rstrip() for line in values)] if values else []
    memory = memory_lines(explained.shared, explained.found.function, len(explained.launches))
    lines += ["", "Memory that launches share", *(f"  {line}" for line in memory)] if memory else []
    lines += ["", "Operands", *(f"  {line}" for line in explained.operands)] if explained.operands else []
    lines += ["", "Unused parallelism"] if explained.unused else []
    for unused in explained.unused:
        first, *rest = wrapped(unused_text(unused)) + wrapped(f"remedy: {unused.remedy}" if unused.remedy else "")
        lines += [f"  {first}", *(f"    {line}" for line in rest)]
    return "\n".join(lines) + "\n"


def _head(explained: Explained) -> list[str]:
    """The signature, and the sizes that it names."""
    signature = signature_text(explained.found.function)
    sizes = sizes_text(signature, explained.sizes)
    return [signature, *([f"  with {sizes}"] if sizes else [])]


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.splitlines()]
