"""vLLM's own counters, taken at each of its steps and put into a `ReadMeter`."""

from typing import Any

from slotstream.operators.engines.stats import ReadMeter

__all__ = ["stat_logger"]


def stat_logger(meter: ReadMeter) -> type:
    """A class for AsyncLLM's `stat_loggers` that fills `meter`. Imports vLLM.

    vLLM adds its Prometheus logger, some forty instruments a step and a dozen a request, unless one of the loggers is
    one. So this is one by name and does nothing of what that does.
    """
    from vllm.v1.metrics.loggers import PrometheusStatLogger  # noqa: PLC0415

    class MeterLogger(PrometheusStatLogger):  # type: ignore[misc]
        def __init__(self, **_: Any) -> None:
            """Makes no instruments."""

        def record(self, scheduler_stats: Any, iteration_stats: Any, **_: Any) -> None:
            """Called once a step, also by a step that ends no request."""
            meter.stepped()
            if scheduler_stats is not None:
                cache = scheduler_stats.prefix_cache_stats
                if cache.queries:
                    meter.looked_up(cache.queries, cache.hits)
            if iteration_stats is not None:
                for request in iteration_stats.finished_requests:
                    meter.queued(request.queued_time)

        def log_engine_initialized(self) -> None:
            pass

        def log(self) -> None:
            pass

        def record_sleep_state(self, *_: int) -> None:
            pass

        def record_admission_rejection(self, _: str) -> None:
            pass

    return MeterLogger
