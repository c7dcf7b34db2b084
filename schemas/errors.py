"""Every error of slotstream, one tree; each class says whose fault it is and what happens next.

    SlotstreamError
    ├── ConfigError                  the operator's: stops at submission (exit code 2)
    │   └── DecisionSchemaError      the schema author's: stops at submission
    ├── OutputSchemaRefused          the registry's rules: stops, nothing dead-lettered (exit code 3)
    ├── DeadLetterLimitReached       nearly every record fails: stops the pipeline (exit code 4)
    ├── MarkError                    the tokenizer cannot spell a mark: stops the worker at start
    ├── EngineNotCapable             the served model or vLLM cannot do slot reads: stops the worker at start
    ├── EngineError                  the engine's: the bundle is retried, no record is blamed
    ├── BrokerError                  Kafka's: the bundle is retried from the committed offsets
    ├── RegistryUnavailable          the registry's: consumption pauses and resumes, nothing is dead-lettered
    └── RecordError                  this record's: it goes to `dead` with `stage` and `code`, its neighbours go on
        ├── DecodeError              the bytes are not what the topic promises
        ├── StateTooLong             the state does not fit the prompt budget and the schema does not cut
        ├── MassTooLow               the marks hold almost none of the model's probability
        ├── ReadNotFinite            the read of this record alone gives NaN while other reads are sound
        ├── ReadTimeout              this read did not finish while others did
        ├── EngineCrash              this record alone has killed the engine three times
        ├── EncodeError              the decision cannot be written behind this record
        ├── RecordTooLarge           the output topic does not take a record of this size
        └── RecordRefused            the output topic does not take this record (time stamp, missing key)

A message names the thing, the rule and the value got, and what to do. No message holds record text.
"""

from typing import ClassVar, Literal

__all__ = [
    "BrokerError",
    "ConfigError",
    "DeadLetterLimitReached",
    "DecisionSchemaError",
    "DecodeError",
    "EncodeError",
    "EngineCrash",
    "EngineError",
    "EngineNotCapable",
    "MarkError",
    "MassTooLow",
    "OutputSchemaRefused",
    "ReadNotFinite",
    "ReadTimeout",
    "RecordError",
    "RecordRefused",
    "RecordTooLarge",
    "RegistryUnavailable",
    "SlotstreamError",
    "Stage",
    "StateTooLong",
]

Stage = Literal["decode", "decide", "encode", "write"]


class SlotstreamError(Exception):
    """Root of the tree; `exit_code` is what the command line ends with when it is not handled earlier."""

    exit_code: ClassVar[int] = 1


class ConfigError(SlotstreamError):
    """A setting is wrong or missing. Fault: whoever wrote the configuration. Next: nothing is started."""

    exit_code = 2


class DecisionSchemaError(ConfigError):
    """A decision schema breaks a rule. Fault: its author. Next: nothing is started."""


class OutputSchemaRefused(SlotstreamError):
    """The registry refuses a derived output schema. Fault: its compatibility rules. Next: stop, no dead letter."""

    exit_code = 3


class DeadLetterLimitReached(SlotstreamError):
    """Too large a share of recent records went to `dead`. Fault: configuration or upstream. Next: stop."""

    exit_code = 4


class MarkError(SlotstreamError):
    """A mark is not one distinct token in its slot. Fault: the model's tokenizer. Next: the worker does not start."""

    exit_code = 2


class EngineNotCapable(SlotstreamError):
    """The engine cannot do what the plan needs. Fault: model or vLLM version. Next: the worker does not start."""

    exit_code = 2


class EngineError(SlotstreamError):
    """The engine failed, stalled or died. Fault: its own. Next: the bundle is retried, no record is blamed."""


class BrokerError(SlotstreamError):
    """Kafka refused or failed. Fault: the broker's or the network's. Next: work goes on from committed offsets."""


class RegistryUnavailable(SlotstreamError):
    """The schema registry does not answer. Fault: its own or the network's. Next: pause and retry, no dead letter."""


class RecordError(SlotstreamError):
    """This record cannot be decided. Fault: the record's or its producer's. Next: it goes to `dead`, nothing stops.

    Args:
        message: what is wrong, without any record text.
        code: overrides the class's code by a narrower stable one, snake case.
    """

    stage: ClassVar[Stage] = "decide"
    default_code: ClassVar[str] = "record_error"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.default_code

    def __reduce__(self) -> tuple[object, ...]:
        # Beam pickles elements at stage borders; the keyword-only code must survive that.
        return _rebuild, (type(self), str(self), self.code)


def _rebuild(cls: type[RecordError], message: str, code: str) -> RecordError:
    return cls(message, code=code)


class DecodeError(RecordError):
    """The value is not what the topic promises (framing, schema, datum, JSON, UTF-8, a missing field)."""

    stage = "decode"
    default_code = "decode_error"


class StateTooLong(RecordError):
    """The state has more tokens than the prompt budget leaves, and the schema says not to cut."""

    default_code = "state_too_long"


class MassTooLow(RecordError):
    """The marks hold less of the vocabulary's probability than the floor: the model answers something nobody listed."""

    default_code = "mass_too_low"


class ReadNotFinite(RecordError):
    """A read of this record, repeated alone, is NaN while the probe read is sound."""

    default_code = "read_not_finite"


class ReadTimeout(RecordError):
    """This record's read did not finish in time although the engine finished other reads meanwhile."""

    default_code = "read_timeout"
    retriable = True


class EngineCrash(RecordError):
    """Run alone, this record killed the engine again."""

    default_code = "engine_crash"


class EncodeError(RecordError):
    """The decision fields cannot be added to this record's value."""

    stage = "encode"
    default_code = "encode_error"


class RecordTooLarge(RecordError):
    """The enriched record is larger than the output topic or the producer accepts."""

    stage = "write"
    default_code = "record_too_large"


class RecordRefused(RecordError):
    """The output topic does not take the record for another reason than its size: a time stamp, a missing key."""

    stage = "write"
    default_code = "record_refused"
