"""Judges a trace that examples/trace wrote: check_trace.py FILE STEPS LAYERS. Events of one thread nest: a step holds
phases, a phase layers, a layer operations; what a whole holds takes no longer than the whole."""

import json
import sys

LEVELS = ["step", "phase", "layer", "op"]
PHASES = ["schedule", "forward", "head", "commit"]


def span(event):
    """Begin and end in whole nanoseconds, free of rounding."""
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def nested(events):
    """(event, those directly within it) of every event; an overlap is an error."""
    families, open_families = [], []
    for event in sorted(events, key=lambda e: (span(e)[0], -span(e)[1], LEVELS.index(e["cat"]))):
        begin, end = span(event)
        while open_families and span(open_families[-1][0])[1] <= begin:
            open_families.pop()
        assert not open_families or end <= span(open_families[-1][0])[1], f"{event} overlaps {open_families[-1][0]}"
        families.append((event, []))
        if open_families:
            open_families[-1][1].append(event)
        open_families.append(families[-1])
    return families


def check_family(event, parts):
    level = LEVELS.index(event["cat"])
    assert all(LEVELS.index(part["cat"]) > level for part in parts), f"{event} holds {parts}"
    assert sum(span(part)[1] - span(part)[0] for part in parts) <= span(event)[1] - span(event)[0], event
    if event["cat"] == "layer":
        assert parts and all(part["args"]["layer"] == event["args"]["layer"] for part in parts), event
    else:
        assert event["cat"] == "op" or event["args"]["layer"] == -1, event
    if event["cat"] == "step":
        assert [part["name"] for part in parts] == PHASES, parts
    if event["name"] == "forward":
        layers = [part["args"]["layer"] for part in parts if part["cat"] == "layer"]
        assert layers == list(range(LAYERS)), layers
    return level


STEPS, LAYERS = int(sys.argv[2]), int(sys.argv[3])
with open(sys.argv[1], encoding="utf-8") as file:
    trace = json.load(file)["traceEvents"]
assert all(event["ph"] == "X" and event["pid"] == event["tid"] == 1 and event["dur"] >= 0 for event in trace)
found = nested(trace)
for family in found:
    check_family(*family)
held = {id(part) for _, parts in found for part in parts}
outermost = [event for event, _ in found if id(event) not in held]
assert all(event["cat"] == "step" or event["name"] == "sample" for event in outermost), outermost
assert sum(event["cat"] == "step" for event in trace) == STEPS
print(f"{len(trace)} events in {STEPS} steps")
