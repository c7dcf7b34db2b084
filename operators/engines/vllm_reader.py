"""Reads through a running AsyncLLM, on its event loop."""

import itertools
from typing import Any

from slotstream.operators.engines.protocol import EngineInfo, ReadRequest, ReadResult
from slotstream.operators.engines.slot_path.request import check_eligible, slot_arguments, slot_result
from slotstream.operators.engines.slot_read import check_request, mark_groups, read_result, sampling_arguments
from slotstream.schemas.errors import EngineError, EngineNotCapable

__all__ = ["VllmReader"]


class VllmReader:
    """The `Reader` over one AsyncLLM.

    Args:
        by_slots: the engine is on the slot path, so that one request reads all marks of all slots.
    """

    def __init__(self, llm: Any, info: EngineInfo, *, by_slots: bool) -> None:
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.inputs import tokens_input  # noqa: PLC0415
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        self._llm = llm
        self._info = info
        self._by_slots = by_slots
        self._names = map(str, itertools.count())
        self._params = SamplingParams
        self._prompt = tokens_input
        self._final_only = RequestOutputKind.FINAL_ONLY

    @property
    def in_float32(self) -> bool:
        """Whether the model's numbers are exact enough to compare two codes to the last digits."""
        return str(self._llm.vllm_config.model_config.dtype) == "torch.float32"

    async def read(self, request: ReadRequest) -> ReadResult:
        """One read by the engine's path. Raises as `Reader` says."""
        check_request(request, self._info)
        if not self._by_slots:
            return await self._read_stock(request)
        params = self._params(**slot_arguments(request), output_kind=self._final_only, skip_clone=True)
        check_eligible(params)
        return slot_result(request, await self._answer(request, params))

    async def read_stock(self, request: ReadRequest) -> ReadResult:
        """One read by vLLM's own sampler, which serves whatever names no slots, on the slot path too."""
        check_request(request, self._info)
        return await self._read_stock(request)

    async def _read_stock(self, request: ReadRequest) -> ReadResult:
        answers = []
        for marks in mark_groups(request):
            arguments = sampling_arguments(request, marks)
            params = self._params(**arguments, output_kind=self._final_only, skip_clone=True)
            answers.append(await self._answer(request, params))
        return read_result(request, answers)

    async def _answer(self, request: ReadRequest, params: Any) -> Any:
        answer = None
        async for output in self._llm.generate(self._prompt(list(request.prompt_ids)), params, next(self._names)):
            answer = output.outputs[0].logprobs if output.outputs else None
        if answer is None:
            raise EngineError("vLLM ended a read without log-probabilities")
        return answer

    def check_settings(self, arguments: dict[str, Any], *, quantized: bool) -> None:
        """Compare the running engine with what was asked: vLLM's model hooks change settings without a word.

        Args:
            quantized: the model was found to be quantized, in a way that is not refused.

        Raises:
            EngineNotCapable: a setting that reads depend on was changed.
        """
        config = self._llm.vllm_config
        running = {
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "enable_chunked_prefill": config.scheduler_config.enable_chunked_prefill,
            "max_model_len": config.model_config.max_model_len,
            "diffusion_config": {"canvas_length": config.diffusion_config.canvas_length},
        }
        changed = [
            f"{name} from {arguments[name]} to {value}" for name, value in running.items() if value != arguments[name]
        ]
        if changed:
            raise EngineNotCapable(
                f"vLLM changed {', '.join(changed)}; slot reads are only safe with the settings asked for"
            )
        expected = quantized or "quantization" in arguments
        if config.model_config.quantization is not None and not expected:
            raise EngineNotCapable(
                f"vLLM finds model {self._info.model!r} quantized ({config.model_config.quantization}) where its "
                "config.json says nothing of it; put quantization_config there, so that it can be checked"
            )
        if config.model_config.get_vocab_size() != self._info.vocab_size:
            raise EngineNotCapable(
                f"vLLM serves a vocabulary of {config.model_config.get_vocab_size()} and the checkpoint says "
                f"{self._info.vocab_size}"
            )

    def failure(self) -> str | None:
        return "vLLM's engine process ended; its own log says why" if self._llm.errored else None

    def close(self) -> None:
        if self._llm.output_handler is not None:
            self._llm.output_handler.cancel()  # or it logs the end of the engine process as a failure
        self._llm.shutdown()
        self._llm = None  # its __del__ must run now: at interpreter exit it prints a TypeError
