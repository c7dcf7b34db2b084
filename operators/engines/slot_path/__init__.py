"""The slot path: vLLM's DiffusionGemma with its reads computed at the slots alone, as a plugin beside vLLM's own code.

A slot read asks for a few positions of one canvas that is denoised once. Stock vLLM turns every position of it into a
row of vocabulary size, loops over the requests with device synchronisations, and sends every position back. Here only
the slot rows are unembedded, in one product for all reads of a step, and only the marks' log-probabilities travel.
Everything else in the same batch goes through vLLM's own sampler.

`plugin` registers it, `gate` says where it may run, `eligible` says which requests it serves. Only an engine that asks
for the architecture name of `names` uses any of this: other vLLM engines are untouched.
"""

__all__: list[str] = []
