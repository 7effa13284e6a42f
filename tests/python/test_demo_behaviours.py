"""What the demo model can do, on held-out conversations, through the chat API of the Python package: the figures of its
page must not get worse."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "gates"))
from gate import BUILD, ROOT, check, finish, make  # noqa: E402

COUNT, SEED = 60, 11  # conversations of each behaviour; not those of the table


def main():
    make("lib")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.path[:0] = [str(ROOT / "examples/python"), str(ROOT / "examples/demo-model/train")]
    import behaviours
    import conversations
    import qwen36

    library = qwen36.Library(BUILD / "libqwen36.so")
    table = behaviours.measure(str(ROOT / "examples/demo-model"), COUNT, SEED, library=library)
    for behaviour in conversations.BEHAVIOURS:
        cells = [table[behaviour, language] for language in ("en", "zh")]
        right, all_ = (sum(cell[i] for cell in cells) for i in (0, 1))
        floor = behaviours.FLOORS[behaviour]
        check(all_ == COUNT and right >= floor * all_, f"{behaviour}: {right} of {all_} right, at least {floor:.0%} expected")
    finish()


main()
