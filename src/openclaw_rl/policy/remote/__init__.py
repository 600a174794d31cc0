"""Engines in other processes, over HTTP: vLLM's server and SGLang's.

Both load LoRA adapters by name while they serve. `engine` is what they have in common, `vllm` and `sglang`
are what each is asked and answers.
"""
