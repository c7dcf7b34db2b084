"""One warm engine per process and configuration: Beam makes and drops DoFns as it likes, the engine stays."""

import atexit
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.protocol import Engine
from slotstream.operators.engines.stats import EngineStats

__all__ = ["close_all", "discard", "engine_for", "engine_stats", "open_engine"]

_LOG = logging.getLogger(__name__)
_lock = threading.Lock()
_engines: dict[str, Future[Engine]] = {}


def engine_for(config: EngineConfig, factory: Callable[[EngineConfig], Engine] | None = None) -> Engine:
    """The process's engine for this configuration, loaded by the first caller; concurrent callers wait for it.

    Args:
        factory: how to make it; unset: `open_engine`.

    Raises:
        SlotstreamError: loading failed. Everyone who waited gets it; the next call tries again.
    """
    key = config.config_hash
    with _lock:
        loading = _engines.get(key)
        mine = loading is None
        if loading is None:
            loading = _engines[key] = Future()
    if mine:
        try:
            engine = (factory or open_engine)(config)
        except BaseException as error:
            with _lock:
                _engines.pop(key, None)
            loading.set_exception(error)
            raise
        # Last registered runs first, and loading registers hooks of its own: multiprocessing's ends vLLM's process.
        atexit.unregister(close_all)
        atexit.register(close_all)
        loading.set_result(engine)
    return loading.result()


def open_engine(config: EngineConfig) -> Engine:
    """Load the engine that `config.kind` names. Heavy imports happen here."""
    if config.kind == "instant":
        from slotstream.operators.testing import InstantEngine, instant_info  # noqa: PLC0415 (a fake)

        _LOG.warning("engine.kind is instant: answers come from a hash of the record and mean nothing")
        return InstantEngine(instant_info(config))
    if config.kind == "transformers":
        from slotstream.operators.engines.transformers import TransformersEngine  # noqa: PLC0415

        return TransformersEngine(config)
    from slotstream.operators.engines.vllm import VllmEngine  # noqa: PLC0415

    return VllmEngine(config)


def engine_stats(config: EngineConfig) -> EngineStats | None:
    """Figures of this configuration's engine; None while none is loaded. Loads nothing."""
    with _lock:
        loading = _engines.get(config.config_hash)
    if loading is None or not loading.done() or loading.exception() is not None:
        return None
    return loading.result().stats()


def discard(config: EngineConfig, engine: Engine | None = None) -> None:
    """Close and forget the engine of this configuration, so that the next `engine_for` loads a new one.

    Args:
        engine: the one that failed; when another thread has replaced it already, the new one stays.
    """
    with _lock:
        loading = _engines.get(config.config_hash)
        if loading is None or not loading.done():
            return  # being loaded by someone: not dead
        if engine is not None and loading.result() is not engine:
            return
        del _engines[config.config_hash]
    loading.result().close()


def close_all() -> None:
    """Close every engine of the process. Runs at interpreter exit, while vLLM can still end its children."""
    with _lock:
        loaded = [engine for engine in _engines.values() if engine.done()]
        _engines.clear()
    for engine in loaded:
        if engine.exception() is None:
            engine.result().close()
