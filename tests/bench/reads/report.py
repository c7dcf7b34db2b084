"""What the figures of several engines say together: agreement, ratios, and the bars with what was reached."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["agreement", "bars"]

Answers = Sequence[Sequence[Sequence[float]]]  # [read][slot][option], natural log-probabilities


def agreement(one: Answers, other: Answers) -> dict[str, Any]:
    """How far two engines' answers to the same reads are apart.

    largest_gap_nats: of a mark's log-probability.  flips: slots whose most probable mark differs.
    largest_change: of a mark's probability among its slot's marks.
    """
    gap = change = 0.0
    flips = slots = 0
    for a, b in ((a, b) for read, its in zip(one, other, strict=True) for a, b in zip(read, its, strict=True)):
        slots += 1
        flips += max(range(len(a)), key=a.__getitem__) != max(range(len(b)), key=b.__getitem__)
        gap = max(gap, *(abs(p - q) for p, q in zip(a, b, strict=True)))
        change = max(change, *(abs(p - q) for p, q in zip(_among(a), _among(b), strict=True)))
    return {
        "reads": len(one),
        "slots": slots,
        "flips": flips,
        "largest_gap_nats": float(f"{gap:.3g}"),
        "largest_change": float(f"{change:.3g}"),
    }


def _among(log_probs: Sequence[float]) -> list[float]:
    top = max(log_probs)
    weights = [math.exp(p - top) for p in log_probs]
    return [weight / sum(weights) for weight in weights]


def bars(engines: Mapping[str, Mapping[str, Any]], *, on_cpu: bool) -> list[dict[str, Any]]:
    """Each bar that the measured rows can judge: what, the figure, the bar, whether it is met."""
    found: list[dict[str, Any]] = []

    def figure(engine: str, row: str, key: str) -> float | None:
        value = engines.get(engine, {}).get("rows", {}).get(row, {}).get(key)
        return float(value) if value is not None else None

    def bar(what: str, value: float | None, limit: float, *, at_most: bool = False) -> None:
        if value is not None:
            met = value <= limit if at_most else value >= limit
            found.append(
                {"what": what, "value": round(value, 3), "at_most" if at_most else "at_least": limit, "met": met}
            )

    def ratio(above: float | None, below: float | None) -> float | None:
        return above / below if above is not None and below else None

    many = "in_flight_32" if on_cpu else "in_flight_256"
    stock, default = (figure(name, many, "reads_s") for name in ("stock", "default"))
    for name in (name for name in engines if name.partition("-")[0] == "ours"):
        ours, one = figure(name, many, "reads_s"), figure(name, "alone", "p50_ms")
        if on_cpu:
            bar(f"{name}: reads/s over stock, 32 in flight, CPU", ratio(ours, stock), 6.0)
            continue
        fp8 = "fp8" in str(engines[name].get("vllm_arguments")) + str(engines[name].get("config"))
        bar(f"{name}: reads/s over stock by default, 256 in flight", ratio(ours, default), 4.0)
        bar(f"{name}: reads/s over stock, cap lifted, 256 in flight", ratio(ours, stock), 2.4 if fp8 else 2.0)
        bar(f"{name}: reads/s, 256 in flight", ours, 480.0 if fp8 else 360.0)
        bar(
            f"{name}: p50 of one read alone, over stock",
            ratio(one, figure("stock", "alone", "p50_ms")),
            0.6,
            at_most=True,
        )
        if fp8:
            bar(f"{name}: p50 of one read alone, ms", one, 20.0, at_most=True)
            bar(f"{name}: decisions/s, 24 slots in a canvas of 64", figure(name, "slots_24", "decisions_s"), 9_000.0)
        eight = ratio(figure(name, "slots_1", "reads_s"), figure(name, "slots_8", "reads_s"))
        bar(f"{name}: cost of 8 slots over one", eight, 1.1, at_most=True)
        stall = figure(name, "mixed", "longest_stall_ms")
        bar(f"{name}: longest time without an answer, mixed reads, ms", stall, 500.0, at_most=True)
    return found
