"""What the command line says on standard error, and of whom."""

import logging
import os
import sys

__all__ = ["log_to_stderr"]


def log_to_stderr(*, debug: bool) -> None:
    """Log slotstream's progress and the warnings of others; with `debug` everything of everyone."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if debug else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(message)s"
        if not debug
        else "%(asctime)s %(levelname)-7s %(name)s %(message)s",
        datefmt="%H:%M:%S",
    )
    if debug:
        return
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # it repeats every attempt to fetch; the error tells
    logging.getLogger().setLevel(logging.WARNING)
    # Beam says so at every import, and nothing here reads BigQuery.
    logging.getLogger().addFilter(lambda record: not str(record.msg).startswith("apitools not found"))
    logging.getLogger("slotstream").setLevel(logging.INFO)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # it logs what it raises, and we tell that
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    for name in ("kafka.net.connection", "kafka.cluster"):  # a lost broker is told once, not by every layer
        logging.getLogger(name).setLevel(logging.ERROR)
